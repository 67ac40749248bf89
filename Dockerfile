# Two targets: `frontend` (no torch; replicas elsewhere) and `server` (frontend with local replicas; the default).
#   docker build -t unstraggle .
#   docker run -p 8000:8000 unstraggle
ARG PYTHON=3.12
FROM python:${PYTHON}-slim AS build
WORKDIR /src
COPY pyproject.toml README.md unstraggle.py ./
COPY coding coding
COPY models models
COPY serving serving
COPY loadtest loadtest
RUN python -m venv /venv && /venv/bin/pip install --no-cache-dir .

FROM build AS build-server
RUN /venv/bin/pip install --no-cache-dir '.[worker]'

FROM python:${PYTHON}-slim AS runtime
RUN useradd --create-home --uid 10001 unstraggle
WORKDIR /home/unstraggle
COPY config.yaml .
ENV PATH=/venv/bin:$PATH PYTHONUNBUFFERED=1 UNSTRAGGLE_SERVER__HOST=0.0.0.0 UNSTRAGGLE_LOG__FORMAT=json
EXPOSE 8000
HEALTHCHECK --interval=5s --timeout=2s --start-period=60s \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/v2/health/live', timeout=2)"]
ENTRYPOINT ["unstraggle"]
CMD ["serve"]

FROM runtime AS frontend
COPY --from=build /venv /venv
USER unstraggle

FROM runtime AS server
COPY --from=build-server /venv /venv
USER unstraggle
