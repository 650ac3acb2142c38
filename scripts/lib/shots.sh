# shellcheck shell=bash
# Sourced by scripts/shots and scripts/measure-page: pictures of a page, taken by Chromium without a window.

# Prints the browser's path; ends the script when there is none.
find_browser() {
  command -v chromium || command -v chromium-browser || command -v google-chrome || {
    say "no Chromium found; on Debian: apt-get install chromium poppler-utils"
    return 1
  }
}

# Runs $browser; its own messages say nothing about the page.
headless() {
  "$browser" --headless=new --no-sandbox --disable-gpu --hide-scrollbars "$@" 2>/dev/null
}

# Prints how high a page is at a width, both in pixels.
page_height() {
  local html=$1 width=$2 copy
  copy=$(mktemp --suffix=.html)
  cp "$html" "$copy"
  printf '<script>document.documentElement.dataset.height = document.documentElement.scrollHeight</script>\n' \
    >>"$copy"
  headless --window-size="$width,600" --dump-dom "file://$copy" |
    grep -o 'data-height="[0-9]*"' | head -n 1 | tr -dc '0-9'
  rm -f "$copy"
}

# shot PAGE WIDTH light|dark PICTURE [HEIGHT]: the page as a PNG, whole or its first HEIGHT pixels.
shot() {
  local html=$1 width=$2 scheme=$3 picture=$4 height=${5:-}
  height=${height:-$(page_height "$html" "$width")}
  local options=(--window-size="$width,${height:-4000}" --screenshot="$picture")
  [[ $scheme == light ]] || options+=(--blink-settings=preferredColorScheme=0)
  headless "${options[@]}" "file://$html" >/dev/null
}
