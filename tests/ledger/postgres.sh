#!/usr/bin/env bash
# Runs a command beside a throw-away PostgreSQL server: tests/ledger/postgres.sh make test
# The command finds the server's URL in PATE_TEST_POSTGRES. Without PostgreSQL this says why and runs the command anyway.
set -uo pipefail

if [ $# -eq 0 ]; then
  echo "usage: $0 COMMAND [ARGUMENT...]" >&2
  exit 2
fi

without() {
  echo "postgres.sh: $1; running without PostgreSQL: $command" >&2
  unset PATE_TEST_POSTGRES
  "${arguments[@]}"
  exit $?
}

newest_binaries() {
  find /usr/lib/postgresql -mindepth 2 -maxdepth 2 -name bin 2>/dev/null | sort -V | tail -n 1
}

as_server() { # initdb and postgres refuse to run as root
  if [ "$(id -u)" -eq 0 ]; then
    (cd / && runuser -u postgres -- "$@")
  else
    "$@"
  fi
}

cleanup() {
  if [ -n "${started:-}" ]; then
    as_server "$binaries/pg_ctl" --pgdata="$folder/data" --mode=immediate --wait stop >/dev/null
  fi
  rm -rf "$folder"
}

arguments=("$@")
command="$*"
binaries=$(newest_binaries)
if [ -z "$binaries" ] && [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
  echo "postgres.sh: installing the package postgresql" >&2
  (apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends postgresql) >/dev/null 2>&1
  binaries=$(newest_binaries)
fi
[ -n "$binaries" ] || without "no PostgreSQL in /usr/lib/postgresql (Debian and Ubuntu: apt-get install postgresql)"
if [ "$(id -u)" -eq 0 ] && ! id postgres >/dev/null 2>&1; then
  without "the server may not run as root and there is no user postgres"
fi

folder=$(mktemp -d) || without "no temporary folder can be made"
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
[ "$(id -u)" -ne 0 ] || chown postgres "$folder"

if ! as_server "$binaries/initdb" --pgdata="$folder/data" --username=postgres --auth=trust --encoding=UTF8 --locale=C \
  >"$folder/initdb.log" 2>&1; then
  cat "$folder/initdb.log" >&2
  without "initdb failed"
fi
for attempt in 1 2 3 4 5; do # a port that was free a moment ago may be taken by now
  port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
  if as_server "$binaries/pg_ctl" --pgdata="$folder/data" --log="$folder/server.log" --wait --timeout=60 \
    --options="-c listen_addresses=127.0.0.1 -c port=$port -c unix_socket_directories='$folder' -c fsync=on" start >/dev/null; then
    started=yes
    break
  fi
done
if [ -z "${started:-}" ]; then
  tail -n 20 "$folder/server.log" >&2
  without "the server did not start in $attempt attempts"
fi

export PATE_TEST_POSTGRES="postgresql+psycopg://postgres@127.0.0.1:$port/postgres"
"${arguments[@]}"
