//! Profiles measured by `omniheap calibrate`, their files, and the policy that uses them.
use core::fmt;
use omniheap_core::{
    Caps, Cost, DefaultPolicy, Keyword as _, ManagerConfig, MeasuredPolicy, Policy, Probe, Profile,
    TableSize,
};
use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// No profile is longer.
const LONGEST: u64 = 8192;

/// The first line of every profile.
const HEADER: &str = "omniheap profile 4";

/// Reason why a profile was not read.
#[derive(Debug)]
#[non_exhaustive]
pub enum ProfileError {
    /// The file could not be read.
    Io(io::Error),
    /// The file is too long to be a profile.
    TooLong {
        /// Bytes that it has.
        size: u64,
    },
    /// A line is invalid: measure again, or delete the file.
    Line {
        /// Its number, from 1.
        number: usize,
    },
    /// The profile was measured on another device, or with another driver: measure again.
    Foreign {
        /// `device` or `driver`.
        what: &'static str,
        /// Device of the measurement.
        measured: String,
        /// This device.
        here: String,
    },
}

impl fmt::Display for ProfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(
                f,
                "the profile could not be read: {error}; check the path and its permissions, or measure one with `omniheap calibrate`"
            ),
            Self::TooLong { size } => {
                write!(f, "the file has {size} bytes; a profile has at most {LONGEST}")
            }
            Self::Line { number } => write!(
                f,
                "line {number} of the profile is invalid; run `omniheap calibrate` again or delete the file"
            ),
            Self::Foreign { what, measured, here } => write!(
                f,
                "the profile was measured with {what} \"{measured}\", but this is \"{here}\"; run `omniheap calibrate` \
                 again"
            ),
        }
    }
}

impl core::error::Error for ProfileError {}

impl From<io::Error> for ProfileError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Origin of a policy's profile.
#[derive(Debug)]
#[non_exhaustive]
pub enum Knowledge {
    /// From the profile of this file.
    Measured(PathBuf),
    /// From the built-in profile: there is no measured one, or profiles are disabled.
    Assumed,
    /// From the built-in rules, because the profile of this file is not fit for use.
    Refused(PathBuf, ProfileError),
}

impl fmt::Display for Knowledge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Measured(path) => write!(f, "measured here ({})", path.display()),
            Self::Assumed => f.write_str("built in; `omniheap calibrate` measures here"),
            Self::Refused(path, why) => write!(f, "built in, not {}: {why}", path.display()),
        }
    }
}

/// Returns the path of a device's profile.
///
/// In the folder that `$OMNIHEAP_PROFILES` names, or in `omniheap` in the user's configuration folder
/// (`$XDG_CONFIG_HOME`, else `$HOME/.config`). `None` where there is no such folder, or where `$OMNIHEAP_PROFILES` is
/// `off`.
#[must_use]
pub fn profile_path(caps: &Caps) -> Option<PathBuf> {
    let named = env::var_os("OMNIHEAP_PROFILES").filter(|folder| !folder.is_empty());
    let folder = match named {
        Some(folder) if folder == "off" => return None,
        Some(folder) => PathBuf::from(folder),
        None => configuration()?.join("omniheap"),
    };
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let name: String = caps.device.name.chars().take(64).map(plain).collect();
    Some(folder.join(format!("{}-{name}.profile", caps.device.backend)))
}

fn configuration() -> Option<PathBuf> {
    let named = env::var_os("XDG_CONFIG_HOME").filter(|folder| !folder.is_empty());
    named.map(PathBuf::from).or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".config")))
}

/// Returns the policy for a device, with what was measured on it where that is known, and where its numbers come from.
#[must_use]
pub fn policy_for(caps: &Caps) -> (Arc<dyn Policy>, Knowledge) {
    let Some(path) = profile_path(caps).filter(|path| path.exists()) else {
        return (Arc::new(DefaultPolicy), Knowledge::Assumed);
    };
    match read_profile(&path, caps) {
        Ok(profile) => (Arc::new(MeasuredPolicy { profile }), Knowledge::Measured(path)),
        Err(why) => (Arc::new(DefaultPolicy), Knowledge::Refused(path, why)),
    }
}

/// Returns the settings of a manager for a device: the usual ones, with [`policy_for`] it.
///
/// ```
/// use omniheap::{Backend, Manager, open_best, placement::config_for};
/// let device = open_best()?;
/// let (config, knowledge) = config_for(device.caps());
/// println!("rules: {knowledge}");
/// let manager = Manager::with_config(device, config);
/// # Ok::<(), omniheap::Error>(())
/// ```
#[must_use]
pub fn config_for(caps: &Caps) -> (ManagerConfig, Knowledge) {
    let mut config = ManagerConfig::default();
    let (policy, knowledge) = policy_for(caps);
    config.policy = policy;
    (config, knowledge)
}

/// Reads what was measured on a device.
///
/// # Errors
///
/// [`ProfileError`]: a file that is not there, too long, no profile, or another device's or driver's.
pub fn read_profile(path: &Path, caps: &Caps) -> Result<Profile, ProfileError> {
    let size = fs::metadata(path)?.len();
    if size > LONGEST {
        return Err(ProfileError::TooLong { size });
    }
    parse(&String::from_utf8_lossy(&fs::read(path)?), caps)
}

/// Returns a name as one line of a profile holds it.
fn in_line(name: &str) -> String {
    name.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(256).collect()
}

fn parse(text: &str, caps: &Caps) -> Result<Profile, ProfileError> {
    let mut lines = (1usize..).zip(text.lines());
    if lines.next().map(|(_, line)| line) != Some(HEADER) {
        return Err(ProfileError::Line { number: 1 });
    }
    for (what, here) in [("device", &caps.device.name), ("driver", &caps.device.driver)] {
        let (number, line) = lines.next().unwrap_or((text.lines().count() + 1, ""));
        let measured = line.strip_prefix(what).ok_or(ProfileError::Line { number })?;
        let (measured, here) = (in_line(measured), in_line(here));
        if measured != here {
            return Err(ProfileError::Foreign { what, measured, here });
        }
    }
    let mut profile = Profile::assumed(caps);
    for (number, line) in lines {
        let words: Vec<&str> = line.split_whitespace().collect();
        profile = entry(profile, &words).ok_or(ProfileError::Line { number })?;
    }
    Ok(profile)
}

/// `PROBE BYTES CONSTANT SHARED STAGE` or `window TIME`, all but the first two in percent.
fn entry(profile: Profile, words: &[&str]) -> Option<Profile> {
    let percent = |word: &str| word.parse::<u32>().ok().filter(|value| *value <= 1_000_000);
    if let ["window", time] = words {
        return Some(profile.with_window(percent(time)?));
    }
    let [probe, size, constant, shared, stage] = words else { return None };
    let probe = Probe::from_word(probe)?;
    let size: u64 = size.parse().ok()?;
    let size = TableSize::ALL.into_iter().find(|class| class.most() == size)?;
    let cost =
        Cost { constant: percent(constant)?, shared: percent(shared)?, stage: percent(stage)? };
    Some(profile.with(probe, size, cost))
}

/// Writes what was measured on a device.
///
/// # Errors
///
/// Fails when the folder or the file cannot be written.
pub fn write_profile(path: &Path, profile: &Profile, caps: &Caps) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, format(profile, caps))
}

fn format(profile: &Profile, caps: &Caps) -> String {
    let (device, driver) = (in_line(&caps.device.name), in_line(&caps.device.driver));
    let mut text = format!("{HEADER}\ndevice {device}\ndriver {driver}\n");
    text.push_str(&format!("window {}\n", profile.window()));
    for (name, probe) in Probe::WORDS {
        for size in TableSize::ALL {
            let Cost { constant, shared, stage } = profile.cost(*probe, size.most());
            text.push_str(&format!("{name} {} {constant} {shared} {stage}\n", size.most()));
        }
    }
    text
}

#[cfg(test)]
mod tests;
