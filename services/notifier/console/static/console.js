// What the console's pages do by themselves. Without it everything still works, by forms and by loading pages anew.
import { signInFromLink } from "./sign-in.js";
import { openInDialog } from "./dialog.js";
import { countDown } from "./countdown.js";
import { follow } from "./live.js";

signInFromLink();
openInDialog();
countDown();
follow();
