# The two commands to know: `make demo` and `make test`. `make help` lists all.

GO       ?= go
GENERATE := argmax axpy exp gather int8 quantize ref scan topk
TIME     ?= 10s

.PHONY: help
help: ## List the targets.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 18

.PHONY: demo
demo: ## Train and measure a screen on the embedded language model.
	$(GO) run ./cmd/l2s demo

.PHONY: build
build: ## Build the command to bin/l2s.
	$(GO) build -o bin/l2s ./cmd/l2s

.PHONY: test
test: lint check-generate ## Run all tests: natively, at each level, and without assembly.
	$(GO) test ./...
	$(GO) test -tags purego ./...
	L2S_SIMD=generic $(GO) test -count=1 ./internal/simd ./screen

# Under qemu the test of memory limits is left out: qemu reads what a masked
# load must not. L2S_SIMD makes each leg fail where it is not on its level.
EMULATED  := $(GO) test -count=1 -short -skip TestNothingIsTouchedOutsideTheSlices
EMULATE   := $(CURDIR)/scripts/qemu
PORTABLE  := ./internal/simd ./kernels ./softmax ./screen

.PHONY: test-levels
test-levels: ## Run the kernels' tests on emulated CPUs: with AVX2, with neither, and arm64.
	$(EMULATE) --install
	L2S_SIMD=avx2 L2S_BEST=avx2 $(EMULATED) -exec "$(EMULATE) x86_64 -cpu Haswell" $(PORTABLE)
	L2S_BEST=generic $(EMULATED) -exec "$(EMULATE) x86_64 -cpu Nehalem" $(PORTABLE)
	GOARCH=arm64 L2S_BEST=generic $(EMULATED) -exec "$(EMULATE) aarch64" $(PORTABLE)

.PHONY: lint
lint: ## Check formatting and run go vet in all modules.
	@files=$$(gofmt -l .); if [ -n "$$files" ]; then echo "gofmt: $$files"; exit 1; fi
	$(GO) vet ./...
	cd gen && $(GO) vet ./...
	cd benchmarks && $(GO) vet ./...

.PHONY: generate
generate: ## Rewrite the assembly in kernels/asm from the programs in gen.
	@set -e; cd gen; for op in $(GENERATE); do \
		$(GO) run ./$$op -out ../kernels/asm/$${op}_amd64.s -stubs ../kernels/asm/$${op}_amd64.go -pkg asm; \
	done

.PHONY: check-generate
check-generate: generate ## Fail if the committed assembly is not what gen writes.
	@out=$$(git status --porcelain -- kernels/asm); if [ -n "$$out" ]; then \
		echo "kernels/asm is not what gen writes:"; echo "$$out"; git --no-pager diff --stat -- kernels/asm; exit 1; fi

.PHONY: fuzz
fuzz: ## Run every fuzz target in turn, TIME=10s each.
	@set -e; for pkg in $$($(GO) list ./...); do \
		for target in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
			echo "$$pkg $$target"; \
			$(GO) test -run '^$$' -fuzz "^$$target$$" -fuzztime $(TIME) $$pkg; \
		done; \
	done

.PHONY: bench
bench: ## Run the Go benchmarks of the kernels and of whole queries.
	$(GO) test -run '^$$' -bench . -benchmem -timeout 60m ./kernels ./screen

# OpenBLAS joins where pkg-config finds it (Debian: libopenblas-dev).
OPENBLAS := $(shell pkg-config --exists openblas 2>/dev/null && echo -tags openblas)

.PHONY: peers
peers: ## Print the table of ratios to OpenBLAS, gonum, vek and plain Go.
	cd benchmarks && $(GO) run $(OPENBLAS) ./peers
