# make             coupond and couponctl, in build/
# make unit        unit tests (cmocka)             make engine   engine tests against the fake store
# make fuzz        fuzz every target with libFuzzer, SECONDS=60 each (needs clang); TARGETS="body json": these alone
# make fuzz-replay run the fuzz targets over their seeds and regressions, with any compiler
# make hooks       coupond with the hooks of tests/hooks/ in it, in build/hooks/: workers that die at named points
# make programs    everything that can be built: the service, the tool, and the programs of all tests
# make tidy        layers, texts, headers, clang-tidy, cppcheck, shellcheck
# make install     into PREFIX (/usr/local), below DESTDIR if set: see scripts/install
# make package     a Debian package, in build/package/: see scripts/package
# make clean       remove every build folder
#
# V=1 shows commands. Each of these builds into a folder of its own: CC=clang; DEV=1 makes warnings errors;
# SAN=address,undefined or SAN=thread; COVERAGE=1 counts what is executed (see tests/analysis/coverage.py).
# MALLOC=libc links coupond without jemalloc. Sanitizers and fuzzers have an allocator of their own.

.DELETE_ON_ERROR:
.SUFFIXES:
MAKEFLAGS += --no-builtin-rules
comma := ,

ifeq ($(origin CC),default)
CC := gcc
endif
V ?= 0
Q := $(if $(filter 1,$(V)),,@)
say = $(if $(filter 1,$(V)),,@printf '  %-5s %s\n' $(1) $(2))

B := build$(if $(findstring clang,$(CC)),-clang)$(if $(SAN),-$(firstword $(subst $(comma), ,$(SAN))))$(if $(FUZZ),-fuzz)
B := $(B)$(if $(DEV),-dev)$(if $(COVERAGE),-coverage)

# ---- what is built of what ----
LAYERS := base coupons store engine lanes http reporter runner deliver verify
LIB_SRC := $(sort $(wildcard $(LAYERS:%=app/%/*.c)))
COUPOND_SRC := $(sort $(wildcard app/coupond/*.c))
CTL_SRC := $(sort $(wildcard app/ctl/*.c))
UNIT_SRC := $(sort $(wildcard tests/unit/test_*.c))
UNIT_HELP_SRC := $(filter-out $(UNIT_SRC),$(sort $(wildcard tests/unit/*.c)))
# In place of what the library has under the same names.
HOOKS_SRC := $(sort $(wildcard tests/hooks/*.c))
ENGINE_SRC := $(sort $(wildcard tests/engine/test_*.c))
ENGINE_HELP_SRC := $(filter-out $(ENGINE_SRC),$(sort $(wildcard tests/engine/*.c)))
FUZZ_SRC := $(sort $(wildcard tests/fuzz/fuzz_*.c))
FUZZ_HELP_SRC := tests/fuzz/fuzz.c tests/fuzz/front.c
# libFuzzer has a main of its own
FUZZ_MAIN_SRC := $(if $(FUZZ),,tests/fuzz/replay.c)
# Bench, faults and analysis build these by themselves; here, for what compilers say of them.
OTHER_SRC := $(sort $(wildcard tests/bench/*.c tests/faults/*.c tests/analysis/*.c))
ALL_SRC := $(LIB_SRC) $(COUPOND_SRC) $(CTL_SRC) $(UNIT_SRC) $(UNIT_HELP_SRC) $(ENGINE_SRC) $(ENGINE_HELP_SRC) $(HOOKS_SRC) $(FUZZ_SRC) \
	$(FUZZ_HELP_SRC) $(FUZZ_MAIN_SRC) $(OTHER_SRC)

obj = $(1:%.c=$(B)/%.o)
LIB := $(B)/libcoupons.a
UNIT_BIN := $(UNIT_SRC:%.c=$(B)/%)
ENGINE_BIN := $(ENGINE_SRC:%.c=$(B)/%)
FUZZ_BIN := $(FUZZ_SRC:%.c=$(B)/%)

# ---- how ----
PACKAGES := libmongoc-1.0 json-c libsodium inih libutf8proc fcgi libcrypto libcurl zlib
PACKAGES_TEST := cmocka
MALLOC ?= $(if $(SAN)$(FUZZ),libc,jemalloc)
PACKAGES_MALLOC := $(filter jemalloc,$(MALLOC))
ifneq ($(MAKECMDGOALS),clean)
MISSING := $(shell for p in $(PACKAGES) $(PACKAGES_MALLOC); do pkg-config --exists $$p || echo $$p; done)
ifneq ($(strip $(MISSING)),)
$(error pkg-config does not find: $(MISSING). On Debian: apt-get install pkg-config libmongoc-dev libjson-c-dev \
	libsodium-dev libinih-dev libutf8proc-dev libfcgi-dev libssl-dev libcurl4-openssl-dev zlib1g-dev libjemalloc-dev)
endif
endif

WARNINGS := -Wall -Wextra -Wpedantic -Wshadow -Wvla -Wformat=2 $(if $(DEV),-Werror)
SANFLAGS := $(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer -fno-sanitize-recover=all) \
	$(if $(FUZZ),-fsanitize=fuzzer-no-link) $(if $(COVERAGE),--coverage -fprofile-update=atomic)
CPPFLAGS += -D_GNU_SOURCE -Iapp -Itests
CFLAGS ?= -O2 -g
# What this compiler has of it for this processor. Sanitizers bring checks of their own; _FORTIFY_SOURCE wants an optimiser.
ifeq ($(SAN)$(FUZZ),)
has = $(shell $(CC) -Werror $(1) -x c -c /dev/null -o /dev/null 2> /dev/null && echo $(1))
HARDENED := -fPIE $(call has,-fstack-clash-protection) $(call has,-fcf-protection) \
	$(if $(filter -O -O1 -O2 -O3 -Os,$(CFLAGS)),-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3)
HARDENED_LD := -pie -Wl,-z,relro,-z,now
endif
ALL_CFLAGS = -std=c17 $(CFLAGS) $(WARNINGS) $(SANFLAGS) $(HARDENED) -fno-common -fstack-protector-strong -MMD -MP \
	$(shell pkg-config --cflags $(PACKAGES) | sed 's/-I\//-isystem \//g')
LIBS = $(shell pkg-config --libs $(PACKAGES)) -lpthread -lm
LIBS_TEST = $(shell pkg-config --libs $(PACKAGES_TEST))
# Asked once, not once per file.
ALL_CFLAGS := $(ALL_CFLAGS)
LIBS := $(LIBS)
LIBS_MALLOC := $(if $(PACKAGES_MALLOC),$(shell pkg-config --libs $(PACKAGES_MALLOC)))

.PHONY: all
all: $(if $(COUPOND_SRC),$(B)/coupond) $(if $(CTL_SRC),$(B)/couponctl)

$(B)/%.o: %.c Makefile
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(ALL_CFLAGS) -c -o $@ $<

$(LIB): $(call obj,$(LIB_SRC))
	$(call say,AR,$@)
	$(Q)rm -f $@ && ar rcs $@ $^

# $(B)/lib.list changes when a source comes or goes, so that the archive loses what was removed.
$(LIB): $(B)/lib.list
$(B)/lib.list: FORCE
	@mkdir -p $(@D)
	@echo '$(LIB_SRC)' | cmp -s - $@ || echo '$(LIB_SRC)' > $@
.PHONY: FORCE
FORCE:

$(B)/coupond: $(call obj,$(COUPOND_SRC)) $(LIB)
	$(call say,LD,$@)
	$(Q)$(CC) $(SANFLAGS) $(HARDENED_LD) $(LDFLAGS) -o $@ $(filter %.o %.a,$^) $(LIBS_MALLOC) $(LIBS)

$(B)/couponctl: $(call obj,$(CTL_SRC)) $(LIB)
	$(call say,LD,$@)
	$(Q)$(CC) $(SANFLAGS) $(HARDENED_LD) $(LDFLAGS) -o $@ $(filter %.o %.a,$^) $(LIBS)

.PHONY: hooks
hooks: $(B)/hooks/coupond $(B)/hooks/couponctl
$(B)/hooks/coupond: $(call obj,$(COUPOND_SRC) $(HOOKS_SRC)) $(LIB)
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(SANFLAGS) $(HARDENED_LD) $(LDFLAGS) -o $@ $(filter %.o %.a,$^) $(LIBS_MALLOC) $(LIBS)
$(B)/hooks/couponctl: $(B)/couponctl
	@mkdir -p $(@D)
	$(Q)ln -f $< $@

# ---- tests: one program per test_*.c; the other files of its folder are linked in ----
$(UNIT_BIN): $(B)/%: $(B)/%.o $(call obj,$(UNIT_HELP_SRC)) $(LIB)
	$(call say,LD,$@)
	$(Q)$(CC) $(SANFLAGS) $(HARDENED_LD) $(LDFLAGS) -o $@ $(filter %.o,$^) $(filter %.a,$^) $(LIBS_TEST) $(LIBS)

# What doctor says of a cluster, too: that file of couponctl alone.
$(B)/tests/unit/test_mongos: $(call obj,app/ctl/doctor_database.c)

$(ENGINE_BIN): $(B)/%: $(B)/%.o $(call obj,$(ENGINE_HELP_SRC) tests/hooks/mongos.c) $(LIB)
	$(call say,LD,$@)
	$(Q)$(CC) $(SANFLAGS) $(HARDENED_LD) $(LDFLAGS) -o $@ $(filter %.o %.a,$^) $(LIBS_TEST) $(LIBS)

$(FUZZ_BIN): $(B)/%: $(B)/%.o $(call obj,$(FUZZ_HELP_SRC) $(FUZZ_MAIN_SRC)) $(LIB)
	$(call say,LD,$@)
	$(Q)$(CC) $(SANFLAGS) $(if $(FUZZ),-fsanitize=fuzzer) $(LDFLAGS) -o $@ $(filter %.o %.a,$^) $(LIBS)

.SECONDARY: $(call obj,$(ALL_SRC))

# Begun first, so that what ends last is short.
LONGEST := $(addprefix %/test_,decide_model apart engine filter lanes mongo_connect mongo_failover mongo_store user_states)
longest_first = $(filter $(LONGEST),$(1)) $(filter-out $(LONGEST),$(1))

.PHONY: programs unit engine
programs: all hooks $(UNIT_BIN) $(ENGINE_BIN) $(FUZZ_BIN) $(call obj,$(OTHER_SRC))
unit: $(UNIT_BIN)
	@scripts/cmocka $(call longest_first,$(UNIT_BIN))
# With TSan not those that need a server, as the driver and TSan do not go together, nor those that start no thread.
NOT_WITH_TSAN := $(addprefix $(B)/tests/engine/test_,mongo_% free_map user_cache)
ENGINE_RUN := $(filter-out $(if $(filter thread,$(SAN)),$(NOT_WITH_TSAN)),$(ENGINE_BIN))
engine: $(ENGINE_RUN)
	@scripts/cmocka $(call longest_first,$(ENGINE_RUN))

# ---- fuzzing: FUZZ=1 builds for libFuzzer, into a folder of its own ----
SECONDS ?= 60
FUZZ_WITH := CC=clang SAN=address,undefined,float-cast-overflow FUZZ=1
.PHONY: fuzz fuzz-programs fuzz-replay
fuzz:
	+@$(MAKE) --no-print-directory $(FUZZ_WITH) fuzz-programs
	@scripts/fuzz $(SECONDS) $(TARGETS)
fuzz-programs: $(FUZZ_BIN)
fuzz-replay: $(FUZZ_BIN)
	@scripts/cmocka $(FUZZ_BIN)

# ---- checks ----
.PHONY: tidy layers texts headers clang-tidy cppcheck shellcheck
tidy: layers texts headers clang-tidy cppcheck shellcheck

# $(call each,FILES,COMMAND): COMMAND, which names its file "$$1", for each of them, as many at a time as there are cores.
# What it prints comes in one piece, and only of those that failed.
each = printf '%s\n' $(1) | xargs -P "$$(nproc)" -n 1 sh -c 'said=$$($(2) 2>&1) || { printf "%s\n" "$$said"; exit 1; }' sh

# Warnings are errors, and nothing is built: enough for clang, which knows them all when it has parsed. gcc optimises first.
.PHONY: parse
parse:
	$(call say,PARSE,$(CC))
	$(Q)$(call each,$(ALL_SRC),$(CC) $(CPPFLAGS) $(filter-out -MMD -MP,$(ALL_CFLAGS)) -Werror -fsyntax-only "$$1")

CHECKED_SRC := $(LIB_SRC) $(COUPOND_SRC) $(CTL_SRC)

clang-tidy:
	$(call say,TIDY,clang-tidy)
	$(Q)$(call each,$(CHECKED_SRC),clang-tidy --quiet --warnings-as-errors="*" "$$1" -- \
		-std=c17 $(CPPFLAGS) $(shell pkg-config --cflags $(PACKAGES)))

cppcheck:
	$(call say,TIDY,cppcheck)
	$(Q)cppcheck --quiet --std=c11 --error-exitcode=1 --inline-suppr --suppressions-list=.cppcheck \
		--enable=warning,performance,portability -j"$$(nproc)" -D_GNU_SOURCE -Iapp $(CHECKED_SRC)

shellcheck:
	$(call say,TIDY,shellcheck)
	$(Q)shellcheck -x $$(grep -rlE '^#!.*sh$$' scripts tests .ci conf) conf/completion/*

layers:
	$(call say,TIDY,layers)
	$(Q)scripts/layers

texts:
	$(call say,TIDY,texts)
	$(Q)scripts/texts

headers:
	$(call say,TIDY,headers)
	@mkdir -p $(B)
	$(Q)$(call each,$(sort $(wildcard app/*/*.h)),printf "#include \"%s\"\nint main(void);\n" "$${1#app/}" | $(CC) $(CPPFLAGS) -std=c17 $(WARNINGS) \
		-Werror $(filter -isystem /%,$(ALL_CFLAGS)) -fsyntax-only -x c - || { echo "$$1 does not compile alone"; exit 1; })

# PREFIX, DESTDIR and others reach it as variables of the environment.
.PHONY: install
install: all
	$(Q)COUPONS_BUILD=$(B) $(foreach v,PREFIX DESTDIR SYSCONFDIR LOCALSTATEDIR RUNSTATEDIR LISTEN METRICS BALANCER SERVER_NAME,$(if $($(v)),$(v)='$($(v))')) \
		scripts/install

.PHONY: package
package: all
	$(Q)COUPONS_BUILD=$(B) $(foreach v,LISTEN METRICS SERVER_NAME,$(if $($(v)),$(v)='$($(v))')) scripts/package

.PHONY: clean
clean:
	rm -rf build build-*

-include $(patsubst %.o,%.d,$(call obj,$(ALL_SRC)))
