# Built from .tools/image, which make images fills.
FROM scratch
COPY root/ /
COPY --chown=10001:10001 owned/data /data
COPY --chown=10001:10001 owned/var/lib/weir /var/lib/weir
COPY config.yaml /etc/weir/config.yaml
COPY jobmanager /jobmanager
USER 10001:10001
WORKDIR /var/lib/weir
ENTRYPOINT ["/jobmanager"]
