# Library and laboratory in one image. The accelerator is a build argument. Its libraries are Python packages.
#
#   docker build -t lvp .                                           # CPU
#   docker build -t lvp:cuda --build-arg EXTRAS=lab,cuda .          # run with: --gpus all
#   docker build -t lvp:tpu --build-arg EXTRAS=lab,tpu .            # run with: --privileged --net=host
#   docker run --shm-size=8g -v "$PWD/runs:/runs" -v lvp-cache:/cache lvp \
#     python -m lvp.sweeps run width_vocab --preset smoke --out /runs/width
ARG PYTHON=3.11
FROM python:${PYTHON}-slim
ARG EXTRAS=lab

WORKDIR /lvp
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY lvp ./lvp
COPY experiments ./experiments
COPY sweeps ./sweeps
RUN pip install --no-cache-dir -c constraints.txt -e ".[${EXTRAS}]"

RUN useradd --create-home lvp && mkdir /cache /runs && chown lvp /cache /runs
USER lvp
ENV LVP_CACHE=/cache
CMD ["python", "-m", "lvp.sweeps", "--help"]
