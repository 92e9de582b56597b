# `decgraph serve` on a CPU, by a user without rights:   docker build -t decgraph . && docker run -p 8000:8000 decgraph
# What follows the image's name is a command line of decgraph's: docker run decgraph check speculative
FROM python:3.11-slim AS built
WORKDIR /src
COPY . .
RUN mkdir /wheels && python .ci/requirements.py demo >/wheels/requirements.txt && pip wheel --no-deps --wheel-dir /wheels .

FROM python:3.11-slim
# For Linux, PyPI has torch with CUDA only; this index has the build for CPUs. pip's options may follow the name.
ARG TORCH="torch==2.13.0 --index-url https://download.pytorch.org/whl/cpu"
# Products and layers are compiled for the processor at the first start, and kept in /data.
RUN apt-get update && apt-get install -y --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
RUN pip install --no-cache-dir ${TORCH}
COPY --from=built /wheels /wheels
RUN pip install --no-cache-dir -r /wheels/requirements.txt "$(echo /wheels/*.whl)[gguf,serve,traces]"
RUN useradd --uid 10001 --create-home decgraph && install -d -o decgraph /data
USER decgraph
ENV DECGRAPH_CACHE=/data PYTHONUNBUFFERED=1
VOLUME /data
EXPOSE 8000
HEALTHCHECK --start-period=5m --interval=10s --timeout=5s \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/ready')"]
ENTRYPOINT ["decgraph"]
CMD ["serve", "--host", "0.0.0.0", "--algorithm", "speculative", "--algorithm", "autoregressive"]
