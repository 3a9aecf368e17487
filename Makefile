# The commands that the README and CI use.

export CARGO_TERM_COLOR ?= auto

.PHONY: help setup test test-all lint demo install bench deny clean
.DEFAULT_GOAL := help

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Install the missing tools that the tests need
	scripts/setup.sh test

test: lint ## Install missing tools, lint, then run every test
	cargo test --workspace --doc
	cargo nextest run --workspace

test-all: ## Run every test, with the full number of kills, pauses and restarts of processes and servers
	ECLUSA_LONG=1 $(MAKE) test

lint: setup ## Check formatting, lints and documentation
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps

demo: ## Build and run the product with fake upstreams; prints what to try
	scripts/setup.sh build
	cargo run --release -p eclusa -- demo

install: ## Build and install the eclusa command, to ~/.cargo/bin or CARGO_INSTALL_ROOT
	scripts/setup.sh build
	cargo install --locked --path crates/eclusa

bench: ## Measure throughput and memory; writes bench/results.json
	scripts/setup.sh bench
	cargo build --release -p eclusa -p eclusa-bench
	target/release/eclusa-bench

deny: ## Check licences, advisories and sources of dependencies
	scripts/setup.sh deny
	cargo deny check

clean: ## Remove everything that was built
	cargo clean
