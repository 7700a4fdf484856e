#!/bin/sh
# Runs the programs of this folder on a machine with a GPU. Needs a POSIX shell and the driver; no Rust.
#
# Ends with the number of failures. What each program writes is kept in $OUT/logs (./results/logs where OUT is not set).
set -u

usage() {
    cat <<'END'
usage: ./run.sh [--sanitize | --bench | --list] [--only PATTERN]
       ./run.sh -- ARGUMENTS...

  (nothing)       runs all tests and examples
  --sanitize      runs them under compute-sanitizer instead, with every check that applies
  --bench         runs the benchmarks instead, and keeps their results as $OUT/NAME.json
  --list          says what there is and what it proves
  --only PATTERN  leaves out programs whose name does not contain this
  -- ARGUMENTS    runs the program tilewright with these, such as: bench gemm --set squares --json "$OUT/squares.json"
END
}

wrong() {
    echo "run.sh: $1" >&2
    usage >&2
    exit 126
}

mode=run
only=
while [ $# -gt 0 ]; do
    case $1 in
    --sanitize | --bench | --list) mode=${1#--} ;;
    --only)
        [ $# -gt 1 ] || wrong "--only needs a pattern"
        only=$2
        shift
        ;;
    -h | --help)
        usage
        exit 0
        ;;
    --)
        mode=program
        shift
        break
        ;;
    *) wrong "unknown option $1" ;;
    esac
    shift
done

here=$(cd "$(dirname "$0")" && pwd) || exit 126

# unpack PROGRAM: programs are compressed until they are used.
unpack() {
    [ -x "$1" ] || { gzip -dc "$1.gz" >"$1.part" && chmod +x "$1.part" && mv "$1.part" "$1"; }
}

if [ "$mode" = program ]; then
    unpack "$here/bin/bin.tilewright" || { echo "run.sh: the program tilewright is not in this pack; pack it without --only" >&2; exit 126; }
    exec "$here/bin/bin.tilewright" "$@"
fi
results=${OUT:-$PWD/results}
logs=$results/logs
tab=$(printf '\t')
# A test that finds no GPU here fails; elsewhere it is ignored.
TILEWRIGHT_REQUIRE_GPU=1
export TILEWRIGHT_REQUIRE_GPU

if [ "$mode" = list ]; then
    while IFS="$tab" read -r kind name seconds tools threaded data arguments proves; do
        printf '%-40s %s\n' "$name" "$proves"
    done <"$here/programs.tsv"
    exit 0
fi
mkdir -p "$logs" || exit 126
if [ "$mode" = sanitize ] && ! command -v compute-sanitizer >/dev/null; then
    for folder in /usr/local/cuda/bin /usr/local/cuda/compute-sanitizer; do
        [ -x "$folder/compute-sanitizer" ] && PATH=$PATH:$folder
    done
    command -v compute-sanitizer >/dev/null || { echo "run.sh: compute-sanitizer was not found; add its folder to PATH" >&2; exit 126; }
fi
command -v timeout >/dev/null || echo "there is no program timeout: nothing is ended that takes too long"

count=0
failures=0
summary=$results/$mode.txt
printf '%-12s %8s  %s\n' result seconds program >"$summary"

# limited SECONDS COMMAND...
limited() {
    limit=$1
    shift
    if command -v timeout >/dev/null; then timeout -k 10 "$limit" "$@"; else "$@"; fi
}

# one NAME SECONDS COMMAND...: runs a command, keeps what it writes, and judges it.
one() {
    label=$1
    seconds=$2
    shift 2
    log=$logs/$label.log
    echo "== $label"
    begin=$(date +%s)
    limited "$seconds" "$@" >"$log" 2>&1 </dev/null
    code=$?
    took=$(($(date +%s) - begin))
    count=$((count + 1))
    case $code in
    0) result=ok ;;
    124 | 137) result="timed out" ;;
    *) result="exit $code" ;;
    esac
    if [ "$code" -ne 0 ]; then
        failures=$((failures + 1))
        tail -n 40 "$log"
    elif [ "$mode" = bench ]; then
        cat "$log"
    fi
    printf '%-12s %8s  %s\n' "$result" "$took" "$label" >>"$summary"
}

while IFS="$tab" read -r kind name seconds tools threaded data arguments proves; do
    case $name in *"$only"*) ;; *) continue ;; esac
    [ "$arguments" = - ] && arguments=
    [ "$tools" = - ] && tools=
    [ "$threaded" = - ] && threaded=
    program=$here/bin/$name
    # Others do not look at the variables of one.
    [ "$data" = - ] || export "${data%%=*}=$here/data/${data#*=}"
    case $mode:$kind in run:bench | bench:test | bench:example | bench:bin) continue ;; esac
    unpack "$program"
    # The arguments are words without spaces of their own.
    # shellcheck disable=SC2086
    case $mode in
    run) one "$name" "$seconds" "$program" $arguments ;;
    bench) one "$name" "$seconds" "$program" --json "$results/$name.json" $arguments ;;
    sanitize)
        for tool in $tools; do
            # The programs judge what calls return, and let some fail on purpose; tests that end a context do so in a process of their own.
            # Sanitizers let kernels run one by one; programs that look at the time must know.
            export TILEWRIGHT_SANITIZED=1
            options="--error-exitcode=99 --report-api-errors=no --target-processes=application-only"
            # `=`, so that no option is two words.
            [ "$tool" = memcheck ] && options="--leak-check=full $options"
            # It follows few barrier objects at a time unless told otherwise, and lets kernels with more of them fail.
            [ "$tool" = synccheck ] && options="--num-cuda-barriers=65536 $options"
            # racecheck cannot follow launches of several threads at once, and calls that a hazard: one test at a time, and none that does so
            # itself. That its kernels are free of hazards, others show.
            choice=
            [ "$kind" = test ] && choice=--test-threads=1
            if [ "$tool" = racecheck ]; then
                for test in $threaded; do choice="$choice --skip=$test"; done
            fi
            one "$name.$tool" $((seconds * 10)) compute-sanitizer --tool="$tool" $options "$program" $arguments $choice
        done
        ;;
    esac
done <"$here/programs.tsv"

echo
cat "$summary"
if [ "$count" -eq 0 ]; then
    echo "nothing was run: no program matches"
    exit 126
fi
echo "$failures of $count failed; what they wrote is in $logs"
[ "$failures" -gt 100 ] && failures=100
exit "$failures"
