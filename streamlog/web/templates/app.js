"use strict";
// Copy buttons, and the tail: the only parts of the pages that need a script.
document.addEventListener("click", async (event) => {
  const id = event.target.dataset && event.target.dataset.copy;
  if (!id) return;
  await navigator.clipboard.writeText(document.getElementById(id).textContent);
  const words = event.target.textContent;
  event.target.textContent = "Copied";
  setTimeout(() => { event.target.textContent = words; }, 1500);
});

const tail = document.getElementById("tail");
if (tail) {
  const state = document.getElementById("tail-state");
  const pause = document.getElementById("pause");
  const MOST_ROWS = 500;
  let isPaused = false;
  let seen = 0;
  pause.addEventListener("click", () => {
    isPaused = !isPaused;
    pause.setAttribute("aria-pressed", String(isPaused));
    pause.textContent = isPaused ? "Go on" : "Pause";
  });
  const look = async () => {
    if (!isPaused) {
      try {
        const query = new URLSearchParams({ cursor: tail.dataset.cursor });
        const answer = await fetch(`${tail.dataset.rows}?${query}`);
        if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
        tail.dataset.cursor = answer.headers.get("x-cursor");
        const rows = document.createElement("tbody");
        rows.innerHTML = await answer.text(); // escaped by the server
        for (const row of Array.from(rows.children)) {
          tail.prepend(row);
          seen += 1;
        }
        while (tail.children.length > MOST_ROWS) tail.lastElementChild.remove();
        state.textContent = seen ? `${seen} new records` : "waiting for records…";
      } catch (error) {
        state.textContent = `no answer, trying again: ${error.message}`;
      }
    }
    setTimeout(look, 1000);
  };
  look();
}
