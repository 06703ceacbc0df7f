# Built from .tools/image, which make images fills. To versitygw's posix backend
# every directory in /s3 is a bucket: the bucket "weir" is one, and becomes part
# of the volume that is mounted there when that is new.
FROM scratch
COPY root/ /
COPY --chown=10001:10001 owned/s3 /s3
COPY versitygw /versitygw
USER 10001:10001
ENTRYPOINT ["/versitygw"]
