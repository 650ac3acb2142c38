# shellcheck shell=bash
# Sourced by scripts/test, scripts/quickstart and the other entry points: what each needs before its own work.
# After sourcing, the working directory is the repository's root.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$ROOT" || exit 1

# A line of progress. Results go to stdout, progress to stderr.
say() { printf '%s\n' "$*" >&2; }

# Whether the script was called for its help: then nothing is built that the help does not need.
case " $* " in
  *" --help "* | *" -h "*) ASKS_HELP=1 ;;
  *) ASKS_HELP= ;;
esac

# Prints the comment at the top of the script, and ends it, if it was called for its help. For scripts whose program
# has no --help of its own.
help_from_comment() {
  [[ -n $ASKS_HELP ]] || return 0
  sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$ROOT/scripts/${0##*/}"
  exit 0
}

# Prints the path of a Python that can build the environment: 3.11 to 3.13 first, then anything newer.
# A name on PATH proves nothing (version managers put shims there), so each candidate is run.
find_python() {
  local candidate
  for range in '(3, 11) <= v < (3, 14)' '(3, 14) <= v < (4, 0)'; do
    for candidate in ${PEAGLE_PYTHON:-} python3 python3.13 python3.12 python3.11 python3.14; do
      if "$candidate" -c "import sys, venv, ensurepip; v = sys.version_info; sys.exit(not ($range))" \
          >/dev/null 2>&1; then
        command -v "$candidate"
        return 0
      fi
    done
  done
  say "No Python 3.11 or newer with the modules venv and ensurepip was found on PATH."
  say "Install one (on Debian and Ubuntu: python3 and python3-venv), or set PEAGLE_PYTHON to its path."
  return 1
}

# The toolkit's environment, .venv: built once, then only when the lock, pyproject.toml or Python changes.
ensure_venv() {
  local python
  python=$(find_python) || exit 1
  "$python" "$ROOT/scripts/lib/environment.py" || exit 1
}

# The engine's environment (a real vLLM on CPU), in the user's cache: built once per lock and Python.
ensure_engine() {
  [[ -z $ASKS_HELP ]] || return 0
  "$ROOT/.venv/bin/python" -m sagemaker_local.engine.env >/dev/null || exit 1
}

# The CDK's command line, from package-lock.json: installed when it is not there in that version. What the app imports
# of its Python, a seventh of 176 MB, is compiled here: three processes of tests would each do it.
ensure_cdk() {
  [[ -z $ASKS_HELP ]] || return 0
  local python_of_cdk
  for python_of_cdk in "$ROOT"/.venv/lib/python3*/site-packages/aws_cdk; do
    if [[ ! -d $python_of_cdk/__pycache__ ]]; then
      say "Compiling the CDK's Python (once; later runs skip this)"
      "$ROOT/.venv/bin/python" -c "import app, stacks.image_stack, stacks.training_stack" || true
    fi
  done
  local lock=$ROOT/package-lock.json stamp=$ROOT/node_modules/.peagle-sm-stamp
  if [[ -f $stamp ]] && cmp -s "$lock" "$stamp"; then
    return
  fi
  if ! command -v npm >/dev/null; then
    say "Node 22 or newer with npm was not found on PATH; the CDK needs it. Install it and run this again."
    exit 1
  fi
  say "Installing the CDK's command line (once; later runs skip this)"
  npm ci --no-audit --no-fund --loglevel=error >&2 || exit 1
  cp "$lock" "$stamp"
}
