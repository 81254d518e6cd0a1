# The image of the command lockstep: a static program and the root certificates for TLS. `make image` and GoReleaser prepare its
# context, which has the program in a folder for each platform.
FROM scratch
ARG TARGETPLATFORM
COPY $TARGETPLATFORM/lockstep /lockstep
COPY bin/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
USER 65532:65532
ENTRYPOINT ["/lockstep"]
