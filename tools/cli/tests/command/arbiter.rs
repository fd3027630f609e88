//! `omniheap serve` and `omniheap tenants`: an arbiter as a process, and commands as its tenants.
#![cfg(target_os = "linux")]
use crate::support::{binary, file, folder, json, omniheap, refuses, text};
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

struct Served {
    child: Child,
    socket: PathBuf,
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts an arbiter and waits until it listens.
fn serve(name: &str, arguments: &[&str]) -> Served {
    // The folder for tests may be too long for a socket's path.
    let socket = std::env::temp_dir().join(format!("{}-{name}", std::process::id()));
    let mut command = Command::new(binary());
    command.arg("serve").arg("--socket").arg(&socket).args(arguments).stdout(Stdio::piped());
    let mut child = command.spawn().expect("the command starts");
    let mut line = String::new();
    let mut lines = BufReader::new(child.stdout.take().expect("piped"));
    lines.read_line(&mut line).expect("text");
    assert!(line.contains(name), "{line}");
    Served { child, socket }
}

#[test]
fn an_arbiter_serves_lists_and_limits_a_program() {
    let policy = file("arbiter.toml", "capacity = \"64MiB\"\n[default]\nquota = \"32MiB\"\n");
    let served = serve("serve.sock", &["--policy", &policy]);
    let socket = served.socket.to_str().expect("a plain name");
    assert_eq!(json(&["tenants", "--socket", socket]), Vec::<serde_json::Value>::new());
    refuses(&["tenants", "--socket", socket, "sleep", "1"], 2, "no tenant");
    let published = json(&["tenants", "published", "--socket", socket]);
    assert_eq!(published, Vec::<serde_json::Value>::new());
    refuses(&["tenants", "withdraw", "llama", "--socket", socket], 2, "nothing is published");
    refuses(&["tenants", "set", "1", "quota=2G", "--socket", socket], 2, "no tenant");
    refuses(&["serve", "--socket", socket, "--capacity", "1G"], 1, "another arbiter");
    // The demo of the command itself becomes a tenant by the variable: too much for this quota, and not for the next one.
    let demo = |socket: &str| {
        let mut command = Command::new(binary());
        command.args(["demo", "--backend", "host"]).env("OMNIHEAP_ARBITER", socket);
        command.current_dir(folder()).output().expect("the command starts")
    };
    let refused = demo(socket);
    assert!(text(&refused.stderr).contains("quota"), "{}", text(&refused.stderr));
    let wide = serve("wide.sock", &["--capacity", "64G"]);
    let done = demo(wide.socket.to_str().expect("a plain name"));
    assert!(done.status.success(), "{}", text(&done.stderr));
    let nobody = demo("/nowhere/0.sock");
    assert!(!nobody.status.success());
    assert!(text(&nobody.stderr).contains("OMNIHEAP_ARBITER"), "{}", text(&nobody.stderr));
}

#[test]
fn wrong_policies_and_sockets_are_refused() {
    let socket = folder().join("never.sock");
    let socket = socket.to_str().expect("a plain name");
    refuses(&["serve", "--socket", socket], 2, "--capacity");
    // No machine that tests this has a hundred GPUs.
    refuses(&["serve", "--socket", socket, "--device", "99"], 2, "--device");
    let policy = file("wrong.toml", "capacity = \"8G\"\nspeed = 1\n");
    refuses(&["serve", "--socket", socket, "--policy", &policy], 2, "unknown field");
    refuses(&["serve", "--socket", socket, "--policy", "absent.toml"], 2, "cannot read");
    let precious = file("precious", "precious");
    refuses(&["serve", "--socket", &precious, "--capacity", "1G"], 2, "no socket");
    refuses(&["serve", "--socket", "/nowhere/0.sock", "--capacity", "1G"], 2, "folder that exists");
    refuses(&["serve", "--socket", socket, "--capacity", "0"], 2, "nothing to divide");
    refuses(&["tenants", "--socket", socket], 1, "omniheap serve");
    let unset = omniheap(&["tenants", "set", "1", "weight=2", "--socket", socket]);
    assert_eq!(unset.status.code(), Some(2));
}
