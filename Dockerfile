# The image of the command lockstep: a static program, the root certificates for TLS, and licenses. `make image` and GoReleaser prepare its
# context, which has the program in a folder for each platform.
FROM scratch
ARG TARGETPLATFORM
COPY $TARGETPLATFORM/lockstep /lockstep
COPY bin/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY bin/LICENSE bin/THIRD_PARTY_NOTICES /licenses/
USER 65532:65532
ENTRYPOINT ["/lockstep"]
