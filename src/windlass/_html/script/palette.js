// The command palette and the keyboard. Single keys can be switched off, and rest while a field has the focus.
(() => {
  const taskId = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;
  let chosen = 0;
  let found = [];

  function pages() {
    return [...document.querySelectorAll(".side nav a")].map((link) => ({
      label: link.textContent.trim(),
      url: link.href,
      hint: `g ${link.dataset.key}`,
    }));
  }

  function matches(text) {
    const wanted = text.trim().toLowerCase();
    const list = pages().filter((one) => one.label.toLowerCase().includes(wanted));
    if (taskId.test(wanted)) list.unshift({ label: `Task ${wanted}`, url: new URL(`tasks/${wanted}`, windlass.base()).href, hint: "task" });
    else if (wanted) {
      const url = new URL("tasks", windlass.base());
      url.searchParams.set("q", text.trim());
      list.push({ label: `Tasks that match “${text.trim()}”`, url: url.href, hint: "filter" });
    }
    return list;
  }

  function show() {
    const list = document.getElementById("palette-list");
    const field = document.getElementById("palette-text");
    found = matches(field.value);
    chosen = Math.min(chosen, Math.max(found.length - 1, 0));
    list.replaceChildren(
      ...found.map((one, number) => {
        const row = document.createElement("li");
        row.id = `palette-${number}`;
        row.setAttribute("role", "option");
        row.setAttribute("aria-selected", String(number === chosen));
        const hint = document.createElement("span");
        hint.className = "quiet";
        hint.textContent = one.hint;
        row.append(one.label, hint);
        row.addEventListener("click", () => location.assign(one.url));
        return row;
      }),
    );
    field.setAttribute("aria-activedescendant", found.length ? `palette-${chosen}` : "");
  }

  function openPalette() {
    const dialog = document.getElementById("palette");
    if (dialog.open || !pages().length) return;
    const field = document.getElementById("palette-text");
    field.value = "";
    chosen = 0;
    show();
    dialog.showModal();
    field.focus();
  }

  document.addEventListener("input", (event) => {
    if (event.target.id !== "palette-text") return;
    chosen = 0;
    show();
  });

  document.addEventListener("keydown", (event) => {
    if (event.target.id === "palette-text") {
      if (event.key === "ArrowDown" || event.key === "ArrowUp") {
        event.preventDefault();
        chosen = (chosen + (event.key === "ArrowDown" ? 1 : -1) + found.length) % Math.max(found.length, 1);
        show();
      } else if (event.key === "Enter") {
        event.preventDefault();
        if (found[chosen]) location.assign(found[chosen].url);
      }
      return;
    }
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
      event.preventDefault();
      openPalette();
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey || document.documentElement.dataset.shortcuts === "off") return;
    if (event.target.closest("input, textarea, select, [contenteditable], dialog, [popover]")) return;
    singleKey(event);
  });

  let afterG = 0;
  function singleKey(event) {
    if (Date.now() - afterG < 1500) {
      afterG = 0;
      const link = document.querySelector(`.side nav a[data-key="${CSS.escape(event.key)}"]`);
      if (link) location.assign(link.href);
      return;
    }
    switch (event.key) {
      case "g": afterG = Date.now(); break;
      case "/": {
        const field = document.querySelector("[data-filter]");
        if (!field) return;
        event.preventDefault();
        field.focus();
        break;
      }
      case "r": windlass.toggleLive(); break;
      case "t": windlass.nextTheme(); break;
      case "?": document.getElementById("help").showModal(); break;
    }
  }

  windlass.open = (id) => (id === "palette" ? openPalette() : document.getElementById(id)?.showModal());
})();
