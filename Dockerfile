# The image of the command lockstep: a static program and the root certificates for TLS. `make image` builds both and the image.
FROM scratch
COPY bin/image/ /
USER 65532:65532
ENTRYPOINT ["/lockstep"]
