//! Settings from outside, by environment variables read once.
//!
//! | variable | default | means |
//! |---|---|---|
//! | `STANDIN_DEVICES` | 1 | devices, 0 to 8 |
//! | `STANDIN_MEMORY` | 8589934592 | bytes of memory of each device |
//! | `STANDIN_DELAY` | 50 | most microseconds by which work of a stream is late |
//! | `STANDIN_RDMA` | 0 | 1: network cards reach virtual memory that was made for them |
//! | `STANDIN_LATE` | 0 | 1: no event is over when it is first asked for |
//! | `STANDIN_RECORD` | 1 | 0: no event stands for all work of a context, as before CUDA 12.5 |
//! | `STANDIN_STRICT` | 0 | 1: a broken rule ends the process |
//! | `STANDIN_COUNTS` | none | file that is written at exit: calls of each kind, bytes, broken rules |
//! | `STANDIN_LOG` | 0 | 1: every call and its answer on standard error |
//!
//! `CUDA_VISIBLE_DEVICES` hides all devices if it is empty or begins with `-`; its other values change nothing. A value that cannot be
//! understood ends the process.

use std::sync::OnceLock;

/// The settings of this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Knobs {
    pub(crate) devices: u32,
    pub(crate) memory: u64,
    pub(crate) delay: u64,
    pub(crate) has_rdma: bool,
    pub(crate) is_late: bool,
    pub(crate) can_record: bool,
    pub(crate) is_strict: bool,
    pub(crate) counts: Option<String>,
    pub(crate) is_logging: bool,
}

impl Knobs {
    /// Reads the settings through `variable`, which returns a variable's value.
    fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let number = |name: &str, default, most| match variable(name) {
            None => Ok(default),
            Some(text) => match text.parse() {
                Ok(value) if value <= most => Ok(value),
                _ => Err(format!("{name}={text}: give a number up to {most}")),
            },
        };
        let devices = number("STANDIN_DEVICES", 1, 8)?;
        let hidden = variable("CUDA_VISIBLE_DEVICES")
            .is_some_and(|list| list.trim().is_empty() || list.starts_with('-'));
        Ok(Self {
            devices: if hidden { 0 } else { u32::try_from(devices).unwrap_or(1) },
            memory: number("STANDIN_MEMORY", 8 << 30, 1 << 40)?,
            delay: number("STANDIN_DELAY", 50, 1_000_000)?,
            has_rdma: number("STANDIN_RDMA", 0, 1)? == 1,
            is_late: number("STANDIN_LATE", 0, 1)? == 1,
            can_record: number("STANDIN_RECORD", 1, 1)? == 1,
            is_strict: number("STANDIN_STRICT", 0, 1)? == 1,
            counts: variable("STANDIN_COUNTS"),
            is_logging: number("STANDIN_LOG", 0, 1)? == 1,
        })
    }
}

/// Returns the settings.
pub(crate) fn knobs() -> &'static Knobs {
    static KNOBS: OnceLock<Knobs> = OnceLock::new();
    KNOBS.get_or_init(|| {
        Knobs::read(|name| std::env::var(name).ok()).unwrap_or_else(|error| {
            eprintln!("[cuda stand-in] {error}");
            std::process::exit(2)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::Knobs;

    fn read(name: &'static str, value: &'static str) -> Result<Knobs, String> {
        Knobs::read(|asked| (asked == name).then(|| value.to_owned()))
    }

    #[test]
    fn good_values_are_taken() {
        assert_eq!(read("STANDIN_DEVICES", "2").map(|knobs| knobs.devices), Ok(2));
        assert_eq!(read("CUDA_VISIBLE_DEVICES", "").map(|knobs| knobs.devices), Ok(0));
        assert_eq!(read("CUDA_VISIBLE_DEVICES", "-1").map(|knobs| knobs.devices), Ok(0));
        assert_eq!(read("CUDA_VISIBLE_DEVICES", "0").map(|knobs| knobs.devices), Ok(1));
        assert_eq!(read("STANDIN_STRICT", "1").map(|knobs| knobs.is_strict), Ok(true));
    }

    #[test]
    fn bad_values_are_named() {
        for (name, value) in
            [("STANDIN_DEVICES", "9"), ("STANDIN_MEMORY", "1 GiB"), ("STANDIN_STRICT", "yes")]
        {
            let error = read(name, value).unwrap_err();
            assert!(error.starts_with(&format!("{name}={value}: give")), "{error}");
        }
    }
}
