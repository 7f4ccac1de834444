// What every page has: theme, dialogs, copy buttons. Runs first, so that the others can use `windlass`.
(() => {
  const root = document.documentElement;
  root.classList.add("js");

  /** Keep a choice of this browser for a year; the server reads it, so that pages come out right at once. */
  function remember(name, value) {
    const path = new URL(document.body.dataset.base, location.href).pathname;
    const secure = location.protocol === "https:" ? "; Secure" : "";
    document.cookie = `windlass-${name}=${value}; path=${path}; max-age=31536000; SameSite=Strict${secure}`;
  }

  const themes = ["", "light", "dark"];
  function nextTheme() {
    const next = themes[(themes.indexOf(root.dataset.theme ?? "") + 1) % themes.length];
    if (next) root.dataset.theme = next;
    else delete root.dataset.theme;
    remember("theme", next);
    say(next ? `Theme: ${next}` : "Theme: as the system");
    document.dispatchEvent(new Event("windlass:theme"));
  }

  /** Show a short message, and read it out. */
  function say(text, tone = "notice") {
    const line = document.createElement("p");
    line.className = tone;
    line.textContent = text;
    document.getElementById("notices").replaceChildren(line);
    setTimeout(() => line.remove(), 4000);
  }

  async function copy(button) {
    const text = button.parentElement.querySelector("pre").textContent;
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      // Without HTTPS there is no clipboard: select the text, so that Ctrl C copies it.
      const range = document.createRange();
      range.selectNodeContents(button.parentElement.querySelector("pre"));
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      say("Selected: press Ctrl C to copy");
      return;
    }
    say("Copied");
  }

  document.addEventListener("click", (event) => {
    const target = event.target.closest("button");
    if (!target) return;
    if (target.id === "theme") nextTheme();
    else if (target.dataset.copy !== undefined) copy(target);
    else if (target.dataset.open) window.windlass.open(target.dataset.open);
  });

  document.addEventListener("change", (event) => {
    if (event.target.id !== "shortcuts") return;
    root.dataset.shortcuts = event.target.checked ? "on" : "off";
    remember("shortcuts", root.dataset.shortcuts);
  });

  window.windlass = {
    say,
    nextTheme,
    base: () => new URL(document.body.dataset.base, location.href),
    open: (id) => document.getElementById(id)?.showModal(),
    /** Call a function now, and after each change of the page. */
    onContent(update) {
      const start = () => {
        update();
        document.addEventListener("htmx:after:swap", update);
        document.addEventListener("htmx:sse:after:message", update);
      };
      if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
      else start();
    },
  };
})();
