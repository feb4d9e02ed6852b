# Each target makes its own virtual environment and installs what it needs.
VENV := .venv
PYTHON ?= python3
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test lint clean

demo: $(STAMP)
	$(BIN)/halfmask compare pose/figures --out demo --overlays 6 --epsilons 0.8 --seeds 0 \
		--methods non-private,public-only,dpsgd,projected,feature,feature-projective
	@echo "Open demo/index.html"

# Tests that measure time run alone, after the others; 5 is what pytest says where there are none.
test: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile -m "not alone"
	$(BIN)/python -m pytest -m alone || [ $$? -eq 5 ]

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable ".[dev]"
	touch $@

clean:
	rm -rf $(VENV) demo
