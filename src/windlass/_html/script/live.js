// The live state of the page: connected, paused by the reader, or cut off; and what went wrong.
(() => {
  const words = {
    connecting: "Connecting",
    live: "Live",
    paused: "Paused",
    disconnected: "Disconnected",
  };
  let paused = false;
  let connected = "connecting";

  function show() {
    const button = document.getElementById("live-state");
    if (!button) return;
    const state = paused ? "paused" : connected;
    button.dataset.state = state;
    button.setAttribute("aria-pressed", String(paused));
    button.querySelector("span").textContent = words[state];
    document.body.classList.toggle("is-stale", state === "disconnected");
  }

  function trouble(text) {
    const place = document.getElementById("trouble");
    place.textContent = text;
    place.hidden = !text;
  }

  function toggle() {
    if (!document.getElementById("live-state")) return;
    paused = !paused;
    show();
    windlass.say(paused ? "Live updates are paused" : "Live updates go on");
    if (!paused) location.reload();
  }

  document.addEventListener("htmx:sse:after:connection", () => {
    connected = "live";
    trouble("");
    show();
  });
  document.addEventListener("htmx:sse:error", (event) => {
    // The key was revoked or the session has ended: the server tells what to do about it.
    if ([401, 403].includes(event.detail.status)) location.reload();
    connected = "disconnected";
    trouble("The server does not respond; what you see may be old. Trying again…");
    show();
  });
  document.addEventListener("htmx:sse:before:message", (event) => {
    if (paused) event.preventDefault();
  });
  document.addEventListener("trouble", (event) => trouble(`What you see may be old: ${event.detail.data}`));
  document.addEventListener("recovered", () => trouble(""));
  document.addEventListener("click", (event) => {
    if (event.target.closest("#live-state")) toggle();
  });
  windlass.toggleLive = toggle;
})();
