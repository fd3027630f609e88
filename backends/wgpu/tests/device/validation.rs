//! Listens to what wgpu logs, and keeps what the validation layers say.
use std::sync::{Mutex, OnceLock};

struct Listener(Mutex<Vec<String>>);

static LISTENER: OnceLock<Listener> = OnceLock::new();

impl log::Log for Listener {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() <= log::Level::Warn
    }

    fn log(&self, record: &log::Record<'_>) {
        let text = record.args().to_string();
        // Every report of a layer names its rule; what else is logged is about loaders and presentation.
        let names_rule = ["VUID", "SYNC-HAZARD", "UNASSIGNED", "VALIDATION"];
        // wgpu names WGSL as the source language of shaders, with a number that older layers do not know.
        let is_about_wgsl = text.contains("Invalid source language operand: 10");
        let is_report = names_rule.iter().any(|rule| text.contains(rule)) && !is_about_wgsl;
        if self.enabled(record.metadata()) && is_report {
            self.0.lock().expect("no panic while held").push(text);
        }
    }

    fn flush(&self) {}
}

/// Starts to listen.
pub(crate) fn listen() {
    let listener = LISTENER.get_or_init(|| Listener(Mutex::default()));
    log::set_logger(listener).expect("set once, by main");
    log::set_max_level(log::LevelFilter::Warn);
}

/// Everything heard so far.
pub(crate) fn messages() -> Vec<String> {
    LISTENER.get().map(|l| l.0.lock().expect("no panic while held").clone()).unwrap_or_default()
}
