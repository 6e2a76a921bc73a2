#!/bin/sh
# Spark needs a JDK 17 or newer. Found: says nothing. Missing: installs a headless JDK 17 where that
# needs no question (root and apt-get), else prints the one command to run. Never fails: without
# Java only the Spark steps are skipped.
major() {
    "$1" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1
}

for java in "${JAVA_HOME:+$JAVA_HOME/bin/java}" java; do
    [ -n "$java" ] || continue
    if command -v "$java" >/dev/null 2>&1 && [ "$(major "$java")" -ge 17 ] 2>/dev/null; then
        exit 0
    fi
done

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "Installing a headless JDK 17 for Spark"
    if apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends openjdk-17-jre-headless >/dev/null; then
        exit 0
    fi
fi
if command -v apt-get >/dev/null 2>&1; then
    command="sudo apt-get install openjdk-17-jre-headless"
elif command -v dnf >/dev/null 2>&1; then
    command="sudo dnf install java-17-openjdk-headless"
elif command -v brew >/dev/null 2>&1; then
    command="brew install openjdk@17"
else
    command="install a JDK 17 and set JAVA_HOME"
fi
echo "No Java 17 or newer: Spark steps will be skipped. To have them, run: $command"
exit 0
