// A form with data-dialog shows its answer in the page's dialog instead of leaving the page.
export function openInDialog() {
  const dialog = document.getElementById("dialog");
  if (!dialog || !dialog.showModal) return;
  const body = dialog.querySelector(".body");
  let opener = null;

  document.addEventListener("submit", async (event) => {
    const form = event.target.closest("form[data-dialog]");
    if (!form) return;
    event.preventDefault();
    opener = form.querySelector("button");
    body.replaceChildren(waiting());
    dialog.setAttribute("aria-busy", "true");
    dialog.showModal();
    try {
      const answer = await fetch(form.action, {
        method: "POST",
        body: new URLSearchParams(new FormData(form)),
        headers: { "X-Takeback-Part": "1" },
      });
      if (answer.redirected) return location.assign(answer.url);
      body.innerHTML = await answer.text(); // our own template: every value in it is escaped
    } catch {
      body.replaceChildren(...failed());
    } finally {
      dialog.removeAttribute("aria-busy");
    }
    (body.querySelector("button.main, a.main") ?? body.querySelector("[data-close]"))?.focus();
  });

  dialog.addEventListener("click", (event) => {
    if (event.target === dialog || event.target.closest("[data-close]")) dialog.close();
  });
  dialog.addEventListener("close", () => {
    body.replaceChildren();
    if (opener?.isConnected) opener.focus();
  });
}

function waiting() {
  const line = document.createElement("p");
  line.className = "loading";
  const spinner = document.createElement("span");
  spinner.className = "spinner";
  const title = document.createElement("span");
  title.id = "dialog-title";
  title.textContent = "Looking at what this would mean…";
  line.append(spinner, title);
  return line;
}

function failed() {
  const title = document.createElement("h2");
  title.id = "dialog-title";
  title.textContent = "No answer";
  const text = document.createElement("p");
  text.textContent = "Takeback could not be reached. Nothing was taken back; try again.";
  const close = document.createElement("button");
  close.type = "button";
  close.dataset.close = "";
  close.textContent = "Close";
  return [title, text, close];
}
