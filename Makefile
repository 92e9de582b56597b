# `make` alone lists the targets. Targets make .venv ready first; the second time that costs nothing.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help setup demo test lint types check proof slow nightly vllm oldest gpu costs golden site vsix clean

BIN := .venv/bin
# Hundreds of tests start a process: where compiled files are not kept, each compiles decgraph anew, seconds of it.
export PYTHONDONTWRITEBYTECODE :=
# What the demo needs, and what everything else does.
DEMO := .venv/.decgraph-demo
READY := .venv/.decgraph-ready
OLDEST := .venv-oldest
# Debian's packages of Coq and mathcomp: a gigabyte.
COQ := coq libcoq-mathcomp-ssreflect libcoq-mathcomp-algebra
# A worker for every core, and a worker that has nothing left takes tests from another; `make test PYTEST_ARGS=` runs them one
# after the other.
PYTEST_ARGS ?= -n auto --dist worksteal
# What pyright reads, in processes of their own: of all of it together one runs out of memory and reads for minutes. mypy reads the
# whole package. Kernels (backends/triton/kernels) are Triton's language and no Python; evals needs lm_eval.
LANGUAGE := dsl ir passes check stdlib views editor
BACKENDS := backends/reference backends/torch backends/triton/models backends/triton/ops backends/triton/*.py
MODELS := runtime zoo
DOORS := backends/exact bench cli hf scale serve *.py
# `make test`, and CI with it, reads the first two: the others take two minutes more, and mypy reads them. `make types` reads all.
READ := "$(LANGUAGE)" "$(BACKENDS)" $(if $(FEW_ROOMS),,"$(MODELS)" "$(DOORS)")
PYRIGHT := $(BIN)/pyright --level error --pythonpath $(BIN)/python

help:  ## list the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /  make \1\t/' | expand -t 16

setup: $(READY)  ## make .venv: torch, decgraph, its models and dev extras

$(DEMO): pyproject.toml .ci/setup
	@.ci/setup demo
	@touch $@

$(READY): pyproject.toml .ci/setup
	@.ci/setup dev
	@touch $(DEMO) $@

demo: $(DEMO)  ## decode a prompt with speculative.dec on the shipped models, prove its claim, refute a broken variant
	@echo "demo 1/4: stdlib/speculative.dec, the whole algorithm"; echo
	@sed -n 's/^/    /p' stdlib/speculative.dec; echo
	@echo "demo 2/4: decgraph run speculative (green: guesses of the small model that the target accepted)"; echo
	@$(BIN)/decgraph run speculative --prompt "def main():" --max-tokens 64 && echo
	@echo "demo 3/4: decgraph check speculative (is its claim true? every outcome of every draw, in fractions)"; echo
	@$(BIN)/decgraph check speculative && echo
	@echo "demo 4/4: decgraph check examples/forgets_the_residual.dec (the same with one line left out)"; echo
	@$(BIN)/decgraph check examples/forgets_the_residual.dec; [ $$? -eq 1 ] && echo
	@echo "Next: docs/tutorial.md, decgraph list, decgraph explain eagle2"

# Everything runs even when an earlier part fails: one run shows all there is to mend. pytest's summary comes last.
test: $(READY)  ## lint, types, and some cases of nearly every test (about five minutes on two cores)
	@failed=0; \
	$(MAKE) --no-print-directory lint || failed=1; \
	$(MAKE) --no-print-directory types FEW_ROOMS=1 || failed=1; \
	[ $$failed = 0 ] || echo "test: lint or types failed (above); the tests run all the same"; \
	echo "test: pytest"; $(BIN)/python -m pytest $(PYTEST_ARGS) || failed=1; \
	exit $$failed

lint: $(READY)  ## ruff: rules and format
	@failed=0; \
	echo "lint: ruff check"; $(BIN)/ruff check . || failed=1; \
	echo "lint: ruff format --check"; $(BIN)/ruff format --check . || failed=1; \
	exit $$failed

types: $(READY)  ## mypy over the package and lab/, pyright over the package
	@failed=0; mkdir -p build; \
	{ read=0; for rooms in $(READ); do \
	    $(PYRIGHT) $$(printf "decgraph/%s " $$rooms) || read=1; \
	done; [ $$read = 0 ]; } >build/pyright.txt 2>&1 & pyright=$$!; \
	echo "types: mypy -p decgraph -p lab"; $(BIN)/mypy -p decgraph -p lab || failed=1; \
	wait $$pyright || failed=1; \
	echo "types: pyright"; cat build/pyright.txt; \
	exit $$failed

check: $(READY)  ## prove every claim of stdlib/, or compare it in worlds
	@echo "check: decgraph check --all --compare"
	@$(BIN)/decgraph check --all --compare || [ $$? -eq 3 ]

# A copy in build/ is compiled, each file in two minutes at most. Where Coq could not be installed nothing is, which CI has to know of.
proof:  ## compile the theorems that proofs of claims rest on, with Coq
	@if command -v coqc >/dev/null; then \
	    mkdir -p build/proof && cp -u proof/*.v proof/_CoqProject build/proof/ && cd build/proof && \
	    coq_makefile -f _CoqProject -o Makefile && \
	    echo "proof: coqc proof/*.v" && $(MAKE) --no-print-directory -j2 TIMECMD="timeout 120"; \
	elif [ -n "$$CI" ] && [ -z "$$DECGRAPH_WITHOUT_COQ" ]; then \
	    echo "proof: Coq is not installed"; exit 1; \
	else \
	    echo "proof: skipped, since Coq is not installed: apt-get install -y --no-install-recommends $(COQ)"; \
	fi

# What `make test` leaves out: products of algorithms, passes and models, long runs in Triton's interpreter, further cases of
# recordings; and every example that hypothesis draws, of which `make test` draws a quarter. CI runs it after `make test`.
slow: $(READY)  ## the rest of what CI runs
	@echo "slow: pytest -m 'slow or hypothesis'"
	@DECGRAPH_EVERY_EXAMPLE=1 $(BIN)/python -m pytest -m "(slow or hypothesis) and not nightly" $(PYTEST_ARGS)

# What does not fit into CI's time: many more worlds and seeds of what `make slow` tests, all kernels compiled anew, every page
# and proof that takes minutes. Run it before a release.
nightly: $(READY)  ## the tests that CI has no time for
	@echo "nightly: pytest -m nightly"
	@DECGRAPH_EVERY_EXAMPLE=1 $(BIN)/python -m pytest -m nightly --timeout 7200 -o faulthandler_timeout=9000 $(PYTEST_ARGS)

# Not in CI: 1.5 GB. What `make nightly` tests inside vLLM is skipped without it.
vllm: $(READY)  ## vLLM for CPUs in .venv-vllm, inside which `make nightly` runs exported programs
	@.ci/vllm

# Not in CI: torch of that age comes with CUDA, gigabytes. Run it after a change of a lower bound in pyproject.toml.
oldest:  ## the fast tests with the oldest versions that pyproject.toml allows, in .venv-oldest
	@.ci/setup oldest
	@echo "oldest: pytest"; $(OLDEST)/bin/python -m pytest $(PYTEST_ARGS)

gpu: $(READY)  ## on a machine with a CUDA device: the tests that need one, then ten minutes of checks and figures
	@echo "gpu: pytest -m gpu"
	@$(BIN)/python -m pytest -m gpu
	@echo "gpu: lab/gpu/first.py"
	@PYTHONPATH=. $(BIN)/python lab/gpu/first.py

costs: $(READY)  ## measure what tests cost, which decides what `make test` leaves to `make slow`
	@echo "costs: tests/costs.py"
	@$(BIN)/python tests/costs.py $(PYTEST_ARGS)

golden: $(READY)  ## write the golden files anew; read the diff before you commit it
	@echo "golden: pytest --update-golden"
	@$(BIN)/python -m pytest --update-golden

# Strict: a link that leads nowhere, to a page or to a heading, or a page that no navigation entry names, stops it.
site: $(READY)  ## build the documentation's site into build/site
	@echo "site: mkdocs build --strict"
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs --quiet build --strict --site-dir build/site
	@echo "site: open build/site/index.html"

VSCE := 3.9.2

vsix:  ## package the VS Code extension as build/decgraph.vsix (needs Node and npm)
	@echo "vsix: npm, vsce $(VSCE)"
	@rm -rf build/vsix && mkdir -p build && cp -r editor/vscode build/vsix && cp LICENSE build/vsix/
	@cd build/vsix && npm ci --omit=dev --silent && npx --yes @vscode/vsce@$(VSCE) package --out ../decgraph.vsix
	@echo "vsix: code --install-extension build/decgraph.vsix"

clean:  ## delete caches and build outputs; keeps .venv
	@echo "clean: build outputs and caches"
	@rm -rf build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
