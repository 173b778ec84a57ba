# A Debian with Python: what the images below take for python:3.11-slim-bookworm where no registry is at hand.
FROM scratch
ADD rootfs.tar /
ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
