# Built from .tools/image, which make images fills. Jobs' binaries are executed
# from /var/lib/weir: if a volume is mounted there it must not be noexec.
FROM scratch
COPY root/ /
COPY --chown=10001:10001 owned/data /data
COPY --chown=10001:10001 owned/var/lib/weir /var/lib/weir
COPY config.yaml /etc/weir/config.yaml
COPY taskmanager /taskmanager
USER 10001:10001
WORKDIR /var/lib/weir
ENTRYPOINT ["/taskmanager"]
