# Build, run and check Odyssey. Only Go and make are needed; targets that need
# more say so.

SHELL       := bash
.SHELLFLAGS := -eu -o pipefail -c
GO          ?= go
PREFIX      ?= /usr/local
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
FUZZTIME    ?= 5s
COMMANDS    := seed tools tasks verify rollout hca train
BINARIES    := $(COMMANDS:%=bin/odyssey-%)

.PHONY: all build run test bench fuzz generate lint install pico gates check-peers clean

all: build

build:
	@mkdir -p bin
	CGO_ENABLED=0 $(GO) build -o bin/ ./cmd/...

# The main job on the embedded tables and the embedded policy: about three
# minutes on two cores. Everything it makes stands under run/.
run: build
	PATH="$(CURDIR)/bin:$$PATH" examples/demo.sh run

test:
	$(GO) test ./...

lint:
	@unformatted=$$(gofmt -l cmd internal man examples *.go); \
	if [ -n "$$unformatted" ]; then echo "gofmt would change:"; echo "$$unformatted"; exit 1; fi
	$(GO) vet ./...
	$(GO) run $(STATICCHECK) ./...

# Each parser of outside bytes, FUZZTIME long.
fuzz:
	@for package in $$($(GO) list ./...); do \
	  for target in $$($(GO) test -list '^Fuzz' $$package | grep '^Fuzz' || true); do \
	    echo "fuzz $$package $$target"; \
	    $(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x $$package; \
	  done; \
	done

bench:
	$(GO) test -run '^$$' -bench . -benchtime 1s ./internal/...

# Regenerate what is committed beside its generator: assembly and tables.
generate:
	$(GO) generate ./...

install: build
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/share/man/man1 $(DESTDIR)$(PREFIX)/share/man/man5 $(DESTDIR)$(PREFIX)/share/man/man7
	install -m 755 $(BINARIES) $(DESTDIR)$(PREFIX)/bin/
	install -m 644 man/*.1 $(DESTDIR)$(PREFIX)/share/man/man1/
	install -m 644 man/*.5 $(DESTDIR)$(PREFIX)/share/man/man5/
	install -m 644 man/*.7 $(DESTDIR)$(PREFIX)/share/man/man7/

# Make the embedded policy anew from the embedded tables: about an hour on two
# cores. See examples/pico.sh.
pico: build
	PATH="$(CURDIR)/bin:$$PATH" examples/pico.sh run/pico
	$(GO) run ./internal/policy/_generate run/pico/policy

# What the embedded policy must show, over three seeds: a quarter of an hour.
gates: build
	PATH="$(CURDIR)/bin:$$PATH" examples/gates.sh run/gates

# Open our streams with pyarrow, polars and DuckDB. Needs Python with venv and
# a package index; nothing else does.
check-peers: build
	python3 -m venv .venv
	.venv/bin/pip install -q -r examples/peers/requirements.txt
	PATH="$(CURDIR)/bin:$$PATH" .venv/bin/python examples/peers/check_streams.py

clean:
	rm -rf bin run .venv
