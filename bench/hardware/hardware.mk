# Copyright (c) The nomad-pal Authors
# SPDX-License-Identifier: MPL-2.0

##@ Proof on GPUs

KIT := build/hardware-kit

# The tools that make hardware needs, checked before anything is built.
.PHONY: hardware-needs
hardware-needs:
	@release/needs.sh go git gcc tar

.PHONY: hardware
hardware: hardware-needs hardware-kit ## Try everything on this machine's GPUs within 8 minutes: one JSON file, one page and one log in build/hardware, with the results that disagree with the docs (HARDWARE='-plan' prints what it would do, '-h' all options)
	@mkdir -p build/hardware
	$(KIT)/hardware.sh -out=build/hardware/$$(hostname) $(HARDWARE)

# The programs of the kit: the plugin, and the program that tries it.
KIT_PROGRAMS := ./device-plugin/cmd/nomad-device-pal ./bench/cmd/hardware

.PHONY: hardware-kit
hardware-kit: ## Pack make hardware for a machine without network and Go: build/hardware-kit and its .tar.gz, under 64 MiB (apt-get install clang lld mmdebstrap; without them, the kit needs a glibc as new as this machine's)
	@rm -rf $(KIT) && mkdir -p $(KIT)/nocgo
	@old=; if type clang ld.lld mmdebstrap >/dev/null 2>&1; then old="release/oldlibc.sh $$(go env GOARCH)"; fi; set -x; \
	  CGO_ENABLED=1 $$old go build -trimpath -ldflags '$(LDFLAGS)' -o $(KIT)/ $(KIT_PROGRAMS)
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o $(KIT)/nocgo/ $(KIT_PROGRAMS)
	cp bench/hardware/hardware.sh LICENSE $(KIT)/
	@needs=$$({ echo GLIBC_2.17; grep -aohE "GLIBC_[0-9.]+" $(KIT)/nomad-device-pal $(KIT)/hardware; } | sort -Vu | tail -n 1); echo "the kit needs $$needs"; \
	  sed "s/@GLIBC@/$${needs#GLIBC_}/" bench/hardware/KIT.txt > $(KIT)/README.txt
	tar -C build -czf $(KIT).tar.gz hardware-kit
	@size=$$(du -sb $(KIT) | cut -f1); echo "$(KIT): $$size bytes; $(KIT).tar.gz: $$(stat -c %s $(KIT).tar.gz) bytes"; [ "$$size" -lt $$((64 << 20)) ]

.PHONY: hardware-nomad
hardware-nomad: build nomad ## Test the plugin, Nomad and the placer on this machine's GPUs: measuring, a training that is stopped, classes, exec, sharing by time slicing and MPS; a few minutes, as root
	E2E_GPUS=real E2E_BIN=$(CURDIR)/$(BIN) NOMAD_BIN=$$(cat build/nomad.path) go test ./e2e -vet=off -count=1 -v -timeout 20m -run TestHardware

NOMAD_KIT := build/hardware-nomad-kit

.PHONY: hardware-nomad-kit
hardware-nomad-kit: build nomad ## Pack make hardware-nomad for a machine without network and Go: build/hardware-nomad-kit.tar.xz; unpack it there and run hardware-nomad.sh
	@rm -rf $(NOMAD_KIT) && mkdir -p $(NOMAD_KIT)/bin $(NOMAD_KIT)/e2e $(NOMAD_KIT)/jobspecs
	go test -c -trimpath -ldflags '-s -w' -o $(NOMAD_KIT)/e2e/e2e.test ./e2e
	cp $(BIN)/nomad-pal $(BIN)/nomad-device-pal $(NOMAD_KIT)/bin/ && cp $$(cat build/nomad.path) $(NOMAD_KIT)/bin/nomad
	cp jobspecs/train.py jobspecs/ranks.nomad.hcl $(NOMAD_KIT)/jobspecs/ && cp bench/hardware/hardware-nomad.sh LICENSE $(NOMAD_KIT)/
	tar -C build -cJf $(NOMAD_KIT).tar.xz hardware-nomad-kit && ls -l $(NOMAD_KIT).tar.xz
