// Rows that are picked by their checkboxes, for an action on all of them.
(() => {
  function update() {
    for (const form of document.querySelectorAll("[data-selection]")) {
      const boxes = [...form.querySelectorAll("input[data-pick]")];
      const picked = boxes.filter((box) => box.checked);
      for (const box of boxes) box.closest("tr").classList.toggle("picked", box.checked);
      const all = form.querySelector("input[data-pick-all]");
      if (all) {
        all.checked = picked.length > 0 && picked.length === boxes.length;
        all.indeterminate = picked.length > 0 && picked.length < boxes.length;
      }
      for (const place of form.querySelectorAll("[data-picked]")) place.textContent = String(picked.length);
      for (const place of form.querySelectorAll("[data-if-picked]")) place.hidden = !picked.length;
    }
  }

  document.addEventListener("change", (event) => {
    const form = event.target.closest("[data-selection]");
    if (!form) return;
    if (event.target.matches("[data-pick-all]")) {
      for (const box of form.querySelectorAll("input[data-pick]")) box.checked = event.target.checked;
    }
    update();
  });
  windlass.onContent(update);
})();
