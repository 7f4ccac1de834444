// Completes the last word of a field: `data-completed` names the list of words.
(() => {
  const words = new Map();

  document.addEventListener("input", (event) => {
    const field = event.target;
    const list = field.dataset?.completed && document.getElementById(field.dataset.completed);
    if (!list) return;
    if (!words.has(list)) words.set(list, [...list.options].map((option) => option.value));
    const before = field.value.slice(0, field.value.lastIndexOf(" ") + 1);
    const last = field.value.slice(before.length).toLowerCase();
    const found = words.get(list).filter((word) => word.toLowerCase().includes(last)).slice(0, 20);
    list.replaceChildren(...found.map((word) => new Option("", before + word)));
  });
})();
