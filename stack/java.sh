#!/bin/sh
# Makes sure of Java 17 or newer and Maven; prints the folder of Java on stdout. Progress and faults go to stderr.
set -u

java_of() {
    if [ -n "${JAVA_HOME:-}" ] && [ -x "$JAVA_HOME/bin/java" ]; then echo "$JAVA_HOME/bin/java"; else command -v java; fi
}

java_major() {
    java=$(java_of) || return 1
    "$java" -version 2>&1 | sed -n 's/.*version "\([0-9][0-9]*\).*/\1/p' | head -n 1
}

missing() {
    lacking=""
    major=$(java_major) || major=""
    [ "${major:-0}" -ge 17 ] || lacking="openjdk-17-jre-headless"
    command -v mvn >/dev/null 2>&1 || lacking="$lacking maven"
    echo "$lacking" | sed 's/^ *//'
}

lacking=$(missing)
if [ -n "$lacking" ]; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        echo "Installing $lacking with apt-get …" >&2
        export DEBIAN_FRONTEND=noninteractive
        apt-get update -qq >&2 || echo "apt-get update failed; trying with the lists at hand." >&2
        case "$lacking" in
        openjdk-17*) apt-cache show openjdk-17-jre-headless >/dev/null 2>&1 || lacking="default-jre-headless${lacking#openjdk-17-jre-headless}" ;;
        esac
        # shellcheck disable=SC2086 # one word a package
        apt-get install -y -qq --no-install-recommends $lacking >&2
        # a JAVA_HOME that pointed to something old must not hide what was just installed
        [ "$(java_major || echo 0)" -ge 17 ] 2>/dev/null || unset JAVA_HOME
    fi
    lacking=$(missing)
    if [ -n "$lacking" ]; then
        echo "Java 17+ or Maven is missing; run as root: apt-get install -y $lacking" >&2
        exit 3
    fi
fi
dirname "$(dirname "$(readlink -f "$(java_of)")")"
