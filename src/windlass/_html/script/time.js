// Times as distances: "3 s ago", "in 5 m"; the exact instant is the title, in the time zone of the browser.
(() => {
  const units = [[60, 1, "s"], [3600, 60, "m"], [172800, 3600, "h"], [Infinity, 86400, "d"]];

  function span(seconds) {
    const [, unit, name] = units.find(([below]) => seconds < below);
    return `${Math.floor(seconds / unit)} ${name}`;
  }

  function distance(at) {
    const seconds = (Date.now() - at) / 1000;
    if (Math.abs(seconds) < 1) return "now";
    return seconds > 0 ? `${span(seconds)} ago` : `in ${span(-seconds)}`;
  }

  function update() {
    for (const one of document.querySelectorAll("time:not(.exact)")) {
      const at = Date.parse(one.dateTime);
      const text = distance(at);
      if (one.textContent !== text) one.textContent = text;
      const title = new Date(at).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "long" });
      if (one.title !== title) one.title = title;
    }
  }

  windlass.onContent(update);
  setInterval(update, 1000);
})();
