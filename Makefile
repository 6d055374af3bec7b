# make lab    set everything up and open the labs in JupyterLab
# make test   set everything up and prove everything
# make demo   set everything up and watch the engine answer eight prompts
# make claims   run the course's claims C1 to C7 on this machine, each against what theory expects
# make gpu-check   on a machine with a GPU: run its tests and benchmarks (no set-up, no network needed)
# The set-up (virtual environment, packages, model) is done once; later calls start at once.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/installed
export JUPYTER_PLATFORM_DIRS := 1

.PHONY: help setup model lab test lint demo claims gpu-check notebooks release clean

help:
	@sed -n '1,6s/^# *//p' Makefile

setup: $(STAMP) model

$(STAMP): requirements.txt pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "minivllm needs Python 3.10 or newer; name one: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check --progress-bar off -q -r requirements.txt
	$(BIN)/python -m pip install --disable-pip-version-check -q --no-deps -e .
	touch $@

model: $(STAMP)
	@$(BIN)/python -m minivllm fetch > /dev/null

# Without a display JupyterLab prints its address instead of opening a browser.
LAB_FLAGS := $(if $(DISPLAY)$(WAYLAND_DISPLAY)$(filter Darwin,$(shell uname -s)),,--no-browser)
LAB_FLAGS += $(if $(filter 0,$(shell id -u)),--allow-root)

lab: setup
	$(BIN)/jupyter lab --notebook-dir=labs $(LAB_FLAGS) $(ARGS)

test: setup
	$(BIN)/python -m pytest tests
	OMP_WAIT_POLICY=passive $(BIN)/python -m pytest --nbval solutions

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

demo: setup
	@$(BIN)/python -m minivllm demo

claims: setup
	@$(BIN)/python -m minivllm bench claims $(ARGS)

# A GPU machine may have torch in its own Python, and no package index to fill a virtual environment from.
gpu-check:
	@$(if $(wildcard $(BIN)/python),$(BIN)/python,$(PYTHON)) -m minivllm.bench.gpu_check $(ARGS)

notebooks: setup
	$(BIN)/python -m minivllm.course.build

release: setup
	$(BIN)/python -m minivllm.course.release

clean:
	rm -rf $(VENV) build dist *.egg-info
