#!/usr/bin/env bash
# Prepares a checkout: .venv with the package and its extras, and a Java for Spark. A second run finds everything
# in place and returns at once.
#
#   tools/setup.sh             the whole set-up
#   tools/setup.sh --no-java   the Python part alone (enough for `make check`)
#
# PYTHON=... chooses the interpreter, JAVA_HOME the Java.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

venv=$PWD/.venv
made_for=$venv/.made-for      # the interpreter and the place that .venv was made for
installed=$venv/.installed    # the hash of what was installed into it
java_env=$venv/java.env       # sourced by the Makefile: exports JAVA_HOME

say() { printf 'set-up: %s\n' "$*"; }
die() { printf 'set-up: %s\n' "$*" >&2; exit 1; }

sha256() { if command -v sha256sum >/dev/null; then sha256sum; else shasum -a 256; fi; }

# apt_install PACKAGE...: false where there is no apt, no right to use it, or no such package.
apt_install() {
    command -v apt-get >/dev/null || return 1
    local as_root=()
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null && sudo -n true 2>/dev/null || return 1
        as_root=(sudo -n)
    fi
    say "installing $* with apt-get"
    "${as_root[@]+"${as_root[@]}"}" apt-get -qq update >/dev/null || true
    "${as_root[@]+"${as_root[@]}"}" env DEBIAN_FRONTEND=noninteractive \
        apt-get -qq install -y --no-install-recommends "$@" >/dev/null
}

# --- Python ---------------------------------------------------------------------------------------------------

recent='import sys; sys.exit(sys.version_info < (3, 11))'

# find_python CODE: the first interpreter that is recent enough and runs CODE. Running it is the test: version
# managers leave commands on the PATH that only say that they are not installed.
find_python() {
    local name path
    for name in ${PYTHON:-python3.13 python3.12 python3.11 python3 python}; do
        while read -r path; do
            if "$path" -c "$recent" 2>/dev/null && "$path" -c "$1" 2>/dev/null; then
                printf '%s\n' "$path"
                return
            fi
        done < <(type -ap "$name" || true)
    done
    return 1
}

# Debian splits ensurepip off into python3-venv, and `import venv` works without it.
with_venv='import venv, ensurepip'

choose_python() {
    find_python "$with_venv" && return
    local bare version
    if bare=$(find_python ''); then
        version=$("$bare" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
        apt_install "python$version-venv" >&2 || apt_install python3-venv >&2 || true
        find_python "$with_venv" ||
            die "Python $version ($bare) cannot make virtual environments; install its venv module" \
                "(Debian, Ubuntu: apt-get install python3-venv)."
    else
        apt_install python3 python3-venv >&2 || true
        find_python "$with_venv" ||
            die "Penstock needs Python 3.11 or newer and found none${PYTHON:+ under PYTHON=$PYTHON}; install one" \
                "(Debian, Ubuntu: apt-get install python3 python3-venv) or set PYTHON to its path."
    fi
}

# A .venv does not survive a change of its interpreter or of its place.
identity() { "$venv/bin/python" -c 'import sys; print(sys.version); print(sys.prefix)' 2>/dev/null; }

set_up_python() {
    if ! [ -f "$made_for" ] || [ "$(identity)" != "$(cat "$made_for")" ]; then
        local python
        python=$(choose_python)
        say "creating .venv with $("$python" --version) ($python)"
        "$python" -m venv --clear "$venv"
        identity >"$made_for"
    fi
    local wanted
    wanted=$(cat pyproject.toml constraints.txt | sha256)
    if [ "$wanted" != "$(cat "$installed" 2>/dev/null)" ]; then
        say "installing penstock with its extras (a few minutes on a fresh machine)"
        "$venv/bin/python" -m pip install -qq --disable-pip-version-check --no-input \
            --constraint constraints.txt --editable '.[all,dev,docs]'
        printf '%s\n' "$wanted" >"$installed"
    fi
}

# --- Java -----------------------------------------------------------------------------------------------------

# probe_java COMMAND: "<major version> <home>", nothing when it does not run ("1 ..." stands for Java 8).
probe_java() {
    { "$1" -XshowSettings:properties -version 2>&1 || true; } |
        awk -F ' = ' '/java\.specification\.version/ { split($2, v, ".") } / java\.home/ { home = $2 }
                      END { if (v[1] && home) print v[1], home }'
}

# find_java: the home of the JAVA_HOME or of the java on the PATH if it is 17 or newer, else of the oldest such
# one in the usual places: Spark supports a release long before it supports the newest.
find_java() {
    local java major home best=999 best_home=
    for java in ${JAVA_HOME:+"$JAVA_HOME/bin/java"} "$(command -v java || true)"; do
        read -r major home < <(probe_java "$java") || continue
        if [ "$major" -ge 17 ]; then printf '%s\n' "$home"; return; fi
    done
    for java in /usr/lib/jvm/*/bin/java /Library/Java/JavaVirtualMachines/*/Contents/Home/bin/java; do
        [ -x "$java" ] || continue
        read -r major home < <(probe_java "$java") || continue
        if [ "$major" -ge 17 ] && [ "$major" -lt "$best" ]; then best=$major best_home=$home; fi
    done
    [ -n "$best_home" ] && printf '%s\n' "$best_home"
}

set_up_java() {
    local asked="# found with JAVA_HOME=${JAVA_HOME:-}" home
    if [ -f "$java_env" ] && [ "$(head -n 1 "$java_env")" = "$asked" ]; then
        home=$(. "$java_env" && printf '%s' "$JAVA_HOME")
        if [ -x "$home/bin/java" ]; then return; fi
    fi
    if ! home=$(find_java); then
        apt_install openjdk-17-jre-headless || apt_install openjdk-21-jre-headless || true
        home=$(find_java) ||
            die "Spark needs Java 17 or newer and none was found; install one" \
                "(Debian, Ubuntu: apt-get install openjdk-17-jre-headless) or set JAVA_HOME to it."
    fi
    say "using the Java in $home"
    printf '%s\nexport JAVA_HOME=%q\n' "$asked" "$home" >"$java_env"
}

case "${1:-}" in
    '') set_up_python; set_up_java ;;
    --no-java) set_up_python ;;
    *) die "unknown option $1; the only one is --no-java." ;;
esac
