//! Settings from outside, by environment variables read once.
//!
//! | variable | default | means |
//! |---|---|---|
//! | `OMNIHEAP_HSA_DEVICES` | 1 | devices, 0 to 8 |
//! | `OMNIHEAP_HSA_VRAM` | 1073741824 | bytes of memory of each device |
//! | `OMNIHEAP_HSA_ARCH` | `gfx90a:sramecc+:xnack-` | architecture and features |
//! | `OMNIHEAP_HSA_GRANULE` | 4096 | granule of device memory, a power of two from 4096 on |
//! | `OMNIHEAP_HSA_LARGE_BAR` | 1 | 1: the host may touch device memory |
//! | `OMNIHEAP_HSA_XNACK` | 0 | 1: page faults of the device are served |
//! | `OMNIHEAP_HSA_SVM` | 1 | 0: no managed memory |
//! | `OMNIHEAP_HSA_VMM` | 1 | 0: no virtual memory |
//! | `OMNIHEAP_HSA_FAIL` | none | which call fails, see [`crate::fault`] |
//! | `OMNIHEAP_HSA_LOG` | 0 | 1: every call and its answer on standard error |
//!
//! A value that cannot be understood makes `hsa_init` fail, and standard error says which.

use std::sync::OnceLock;

/// The settings of this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Knobs {
    /// Number of devices.
    pub devices: u32,
    /// Bytes of memory of each device.
    pub vram: u64,
    /// Architecture with its features.
    pub arch: String,
    /// Granule of device memory in bytes.
    pub granule: u64,
    /// True if the host may touch device memory.
    pub large_bar: bool,
    /// True if page faults of the device are served.
    pub xnack: bool,
    /// True if there is managed memory.
    pub svm: bool,
    /// True if there is virtual memory.
    pub vmm: bool,
    /// True if calls are logged.
    pub log: bool,
}

impl Default for Knobs {
    fn default() -> Self {
        Self {
            devices: 1,
            vram: 1 << 30,
            arch: "gfx90a:sramecc+:xnack-".to_owned(),
            granule: 4096,
            large_bar: true,
            xnack: false,
            svm: true,
            vmm: true,
            log: false,
        }
    }
}

impl Knobs {
    /// Reads the settings through `variable`, which answers a variable's value.
    ///
    /// # Errors
    /// Names the variable that cannot be understood and what it takes.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let base = Self::default();
        let number = |name, default, rule| number(variable(name), name, default, rule);
        let switch =
            |name, default| number(name, u64::from(default), SWITCH).map(|value| value == 1);
        let arch = variable("OMNIHEAP_HSA_ARCH").unwrap_or(base.arch);
        if !arch.starts_with("gfx") {
            return Err(format!("OMNIHEAP_HSA_ARCH={arch}: give an architecture such as gfx942"));
        }
        let devices = number("OMNIHEAP_HSA_DEVICES", base.devices.into(), DEVICES)?;
        Ok(Self {
            devices: u32::try_from(devices).unwrap_or(base.devices), // Always fits: it is at most 8.
            vram: number("OMNIHEAP_HSA_VRAM", base.vram, VRAM)?,
            granule: number("OMNIHEAP_HSA_GRANULE", base.granule, GRANULE)?,
            arch,
            large_bar: switch("OMNIHEAP_HSA_LARGE_BAR", base.large_bar)?,
            xnack: switch("OMNIHEAP_HSA_XNACK", base.xnack)?,
            svm: switch("OMNIHEAP_HSA_SVM", base.svm)?,
            vmm: switch("OMNIHEAP_HSA_VMM", base.vmm)?,
            log: switch("OMNIHEAP_HSA_LOG", base.log)?,
        })
    }

    /// The architecture without its features.
    #[must_use]
    pub fn processor(&self) -> &str {
        self.arch.split(':').next().unwrap_or(&self.arch)
    }

    /// Threads that run in step.
    pub(crate) fn wavefront(&self) -> u32 {
        if self.processor().starts_with("gfx9") { 64 } else { 32 }
    }

    /// Bytes of memory that a group of threads shares.
    pub(crate) fn group_memory(&self) -> u64 {
        if self.processor() == "gfx950" { 160 << 10 } else { 64 << 10 }
    }
}

/// Numbers that a variable takes, and the words for them.
type Rule = (fn(u64) -> bool, &'static str);

const DEVICES: Rule = (|value| value <= 8, "give 0 to 8");
const VRAM: Rule = (|value| value >= 1 << 20, "give bytes, at least 1048576");
const GRANULE: Rule =
    (|value| value.is_power_of_two() && value >= 4096, "give a power of two from 4096 on");
const SWITCH: Rule = (|value| value < 2, "give 0 or 1");

fn number(
    given: Option<String>,
    name: &str,
    default: u64,
    (takes, says): Rule,
) -> Result<u64, String> {
    match given {
        None => Ok(default),
        Some(text) => text
            .parse()
            .ok()
            .filter(|&value| takes(value))
            .ok_or_else(|| format!("{name}={text}: {says}")),
    }
}

/// Returns the settings, or what is wrong with them.
pub(crate) fn checked() -> &'static Result<Knobs, String> {
    static KNOBS: OnceLock<Result<Knobs, String>> = OnceLock::new();
    KNOBS.get_or_init(|| Knobs::read(|name| std::env::var(name).ok()))
}

/// Returns the settings. `hsa_init` fails when they are wrong, so that nothing after it sees the defaults instead.
pub(crate) fn knobs() -> &'static Knobs {
    static DEFAULT: OnceLock<Knobs> = OnceLock::new();
    checked().as_ref().unwrap_or_else(|_| DEFAULT.get_or_init(Knobs::default))
}

/// Writes a line to standard error when logging is on.
pub(crate) fn log(line: impl FnOnce() -> String) {
    if knobs().log {
        eprintln!("[hsa stand-in] {}", line());
    }
}

#[cfg(test)]
mod tests {
    use super::Knobs;

    fn read(name: &'static str, value: &'static str) -> Result<Knobs, String> {
        Knobs::read(|asked| (asked == name).then(|| value.to_owned()))
    }

    #[test]
    fn good_values_are_taken() {
        assert_eq!(read("OMNIHEAP_HSA_DEVICES", "2").map(|knobs| knobs.devices), Ok(2));
        assert_eq!(read("OMNIHEAP_HSA_ARCH", "gfx1100").map(|knobs| knobs.wavefront()), Ok(32));
        assert_eq!(
            read("OMNIHEAP_HSA_ARCH", "gfx950:xnack-").map(|knobs| knobs.group_memory()),
            Ok(163_840)
        );
        assert_eq!(Knobs::read(|_| None), Ok(Knobs::default()));
    }

    #[test]
    fn bad_values_are_named() {
        for (name, value) in [
            ("OMNIHEAP_HSA_DEVICES", "9"),
            ("OMNIHEAP_HSA_VRAM", "1 GiB"),
            ("OMNIHEAP_HSA_GRANULE", "5000"),
            ("OMNIHEAP_HSA_ARCH", "sm_90"),
            ("OMNIHEAP_HSA_XNACK", "yes"),
        ] {
            let error = read(name, value).unwrap_err();
            assert!(error.starts_with(&format!("{name}={value}: give")), "{error}");
        }
    }
}
