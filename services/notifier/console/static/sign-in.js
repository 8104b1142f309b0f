// The link that the terminal prints holds a token behind the #: it never reaches a server's log, and leaves the address at once.
export function signInFromLink() {
  const form = document.getElementById("token-form");
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (!form || !token) return;
  history.replaceState(null, "", location.pathname + location.search);
  form.elements.token.value = token;
  form.requestSubmit();
}
