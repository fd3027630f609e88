//! A browser that is driven over a pipe, by the `DevTools` protocol: JSON messages that end in a zero byte.

use core::time::Duration;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

/// Timeout of a browser's answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns the first browser that is installed.
pub(crate) fn installed() -> Option<&'static str> {
    let runs = |name: &&str| {
        Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success())
    };
    ["chromium", "chromium-browser", "google-chrome"].into_iter().find(runs)
}

/// A running browser with a profile of its own.
pub(crate) struct Browser {
    process: Child,
    input: ChildStdin,
    messages: Receiver<Value>,
    calls: u64,
    profile: PathBuf,
}

impl Browser {
    pub(crate) fn start(name: &str, profile: PathBuf) -> Self {
        // The browser reads from descriptor 3 and writes to 4; the shell puts our pipes there.
        let pipes = r#"exec "$@" 3<&0 4>&1 >/dev/null 2>&1"#;
        let mut process = Command::new("sh")
            .args(["-c", pipes, "sh", name, "--headless", "--no-sandbox", "--disable-gpu"])
            .args(["--no-first-run", "--disable-sync", "--disable-component-update"])
            .args(["--disable-background-networking", "--hide-scrollbars"])
            .args(["--remote-debugging-pipe", "about:blank"])
            .arg(format!("--user-data-dir={}", profile.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the browser starts");
        let input = process.stdin.take().expect("it is piped");
        let output = BufReader::new(process.stdout.take().expect("it is piped"));
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            for message in output.split(0).map_while(Result::ok) {
                let message = serde_json::from_slice(&message).expect("the browser speaks JSON");
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        Self { process, input, messages, calls: 0, profile }
    }

    /// Opens a file and waits until the page is drawn.
    pub(crate) fn open(&mut self, file: &Path) -> Page<'_> {
        let mut page = self.load(file);
        let ready = page.text("document.documentElement.dataset.ready");
        assert!(ready.parse::<u64>().is_ok(), "{ready}: {}", page.text_of("#notice"));
        page
    }

    /// Opens a file that cannot be shown, and returns what the page says instead.
    pub(crate) fn refuses(&mut self, file: &Path) -> String {
        let mut page = self.load(file);
        assert_eq!(page.text("document.documentElement.dataset.ready"), "error");
        page.text_of("#notice")
    }

    /// Opens a file in a window of its own and waits until the page is done with it.
    fn load(&mut self, file: &Path) -> Page<'_> {
        let target = self.call("", "Target.createTarget", &json!({ "url": "about:blank" }));
        let target = target["targetId"].as_str().expect("a name").to_owned();
        let attach = json!({ "targetId": target, "flatten": true });
        let session = self.call("", "Target.attachToTarget", &attach);
        let session = session["sessionId"].as_str().expect("a name").to_owned();
        let mut page = Page { browser: self, session, target };
        page.call("Runtime.enable", &json!({}));
        page.call("Page.enable", &json!({}));
        page.resize(1200, 900);
        page.call("Page.navigate", &json!({ "url": format!("file://{}", file.display()) }));
        page.wait("document.documentElement?.dataset.ready");
        page
    }

    fn call(&mut self, session: &str, method: &str, parameters: &Value) -> Value {
        self.calls += 1;
        let mut message = json!({ "id": self.calls, "method": method, "params": parameters });
        if !session.is_empty() {
            message["sessionId"] = session.into();
        }
        let mut line = message.to_string().into_bytes();
        line.push(0);
        self.input.write_all(&line).expect("the browser reads");
        loop {
            let answer = self.messages.recv_timeout(PATIENCE).expect("the browser answers");
            if answer["id"] == self.calls {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].clone();
            }
            assert_ne!(answer["method"], "Runtime.exceptionThrown", "the page failed: {answer}");
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Killed rather than closed: a test that panicked left it in any state.
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.profile);
    }
}

/// An open page.
pub(crate) struct Page<'b> {
    browser: &'b mut Browser,
    session: String,
    target: String,
}

impl Page<'_> {
    fn call(&mut self, method: &str, parameters: &Value) -> Value {
        let session = self.session.clone();
        self.browser.call(&session, method, parameters)
    }

    /// Evaluates an expression; a promise is waited for.
    pub(crate) fn js(&mut self, expression: &str) -> Value {
        let how = json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let answer = self.call("Runtime.evaluate", &how);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    pub(crate) fn number(&mut self, expression: &str) -> f64 {
        let value = self.js(expression);
        value.as_f64().unwrap_or_else(|| panic!("{expression} is {value}"))
    }

    pub(crate) fn text(&mut self, expression: &str) -> String {
        let value = self.js(expression);
        value.as_str().unwrap_or_else(|| panic!("{expression} is {value}")).to_owned()
    }

    /// Returns the text of the first element that a selector finds.
    pub(crate) fn text_of(&mut self, selector: &str) -> String {
        self.text(&format!("document.querySelector({}).textContent", json!(selector)))
    }

    /// Waits until an expression is true in the page.
    pub(crate) fn wait(&mut self, expression: &str) -> Value {
        self.js(&format!(
            "new Promise((done) => {{ const look = () => {{ const found = {expression}; \
             if (found) done(found); else setTimeout(look, 5); }}; look(); }})"
        ))
    }

    /// Waits until everything that was asked for is drawn: drawing happens in the next frame, and may ask for one more.
    pub(crate) fn settle(&mut self) {
        let frames = "new Promise((done) => { let left = 4; const next = () => \
                      { if (left-- > 0) requestAnimationFrame(next); else done(true); }; next(); })";
        self.js(frames);
    }

    pub(crate) fn resize(&mut self, width: u32, height: u32) {
        let size =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", &size);
        self.settle();
    }

    /// Sets what the system prefers: `light` or `dark`.
    pub(crate) fn prefer(&mut self, scheme: &str) {
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.call("Emulation.setEmulatedMedia", &json!({ "features": features }));
        self.settle();
    }

    fn mouse(&mut self, kind: &str, (x, y): (f64, f64), more: &Value) {
        let mut event = json!({ "type": kind, "x": x, "y": y });
        if let (Some(event), Some(more)) = (event.as_object_mut(), more.as_object()) {
            event.extend(more.clone());
        }
        self.call("Input.dispatchMouseEvent", &event);
    }

    pub(crate) fn hover(&mut self, at: (f64, f64)) {
        self.mouse("mouseMoved", at, &json!({}));
        self.settle();
    }

    pub(crate) fn click(&mut self, at: (f64, f64)) {
        self.hover(at);
        let button = json!({ "button": "left", "clickCount": 1 });
        self.mouse("mousePressed", at, &button);
        self.mouse("mouseReleased", at, &button);
        self.settle();
    }

    pub(crate) fn drag(&mut self, from: (f64, f64), to: (f64, f64)) {
        let button = json!({ "button": "left", "buttons": 1, "clickCount": 1 });
        self.hover(from);
        self.mouse("mousePressed", from, &button);
        for part in [0.3, 0.7, 1.0] {
            let at = (from.0 + (to.0 - from.0) * part, from.1 + (to.1 - from.1) * part);
            self.mouse("mouseMoved", at, &button);
        }
        self.mouse("mouseReleased", to, &button);
        self.settle();
    }

    pub(crate) fn wheel(&mut self, at: (f64, f64), down: f64) {
        self.mouse("mouseWheel", at, &json!({ "deltaX": 0, "deltaY": down }));
        self.settle();
    }

    /// Two fingers that move apart or together along a line.
    pub(crate) fn pinch(&mut self, middle: (f64, f64), from: f64, to: f64) {
        let fingers = |apart: f64| {
            json!([{ "x": middle.0 - apart, "y": middle.1, "id": 1 },
                { "x": middle.0 + apart, "y": middle.1, "id": 2 }])
        };
        let mut touch = |kind: &str, points: Value| {
            self.call("Input.dispatchTouchEvent", &json!({ "type": kind, "touchPoints": points }));
        };
        touch("touchStart", fingers(from));
        for part in [0.25, 0.5, 0.75, 1.0] {
            touch("touchMove", fingers(from + (to - from) * part));
        }
        touch("touchEnd", json!([]));
        self.settle();
    }

    pub(crate) fn key(&mut self, key: &str) {
        let text = if key.chars().count() == 1 { key } else { "" };
        self.call(
            "Input.dispatchKeyEvent",
            &json!({ "type": "keyDown", "key": key, "text": text }),
        );
        self.call("Input.dispatchKeyEvent", &json!({ "type": "keyUp", "key": key }));
        self.settle();
    }

    /// Replaces what is in a field.
    pub(crate) fn type_into(&mut self, selector: &str, text: &str) {
        let field = format!("document.querySelector({})", json!(selector));
        self.js(&format!("{field}.focus(); {field}.select()"));
        self.call("Input.insertText", &json!({ "text": text }));
        self.settle();
    }

    /// Returns the middle of the first element that a selector finds, scrolled into view.
    pub(crate) fn middle_of(&mut self, selector: &str) -> (f64, f64) {
        let find = format!("document.querySelector({})", json!(selector));
        self.js(&format!("{find}.scrollIntoView({{ block: 'center' }})"));
        self.settle();
        let side = |page: &mut Self, name: &str, half: &str| {
            page.number(&format!(
                "(box => box.{name} + box.{half} / 2)({find}.getBoundingClientRect())"
            ))
        };
        (side(self, "left", "width"), side(self, "top", "height"))
    }

    pub(crate) fn press(&mut self, selector: &str) {
        let at = self.middle_of(selector);
        self.click(at);
    }

    /// Chooses an option as a person would: the select changes, and tells so.
    pub(crate) fn choose(&mut self, selector: &str, value: &str) {
        let find = format!("document.querySelector({})", json!(selector));
        self.js(&format!(
            "{find}.value = {}; {find}.dispatchEvent(new Event('change'))",
            json!(value)
        ));
        self.settle();
    }
}

impl Drop for Page<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let target = json!({ "targetId": self.target });
            self.browser.call("", "Target.closeTarget", &target);
        }
    }
}
