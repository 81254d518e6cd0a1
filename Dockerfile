# The command lockstep, alone: it needs no other program, and the roots of TLS. `make image` builds the program and this.
FROM scratch
COPY bin/image/ /
USER 65532:65532
ENTRYPOINT ["/lockstep"]
