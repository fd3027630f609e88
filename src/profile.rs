//! What `omniheap calibrate` measured, kept in a file of a few lines.
use core::fmt;
use omniheap_core::{
    Caps, Cost, DefaultPolicy, MeasuredPolicy, Pattern, Policy, Profile, TableSize,
};
use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// No profile is longer.
const LONGEST: u64 = 4096;

/// The first line of every profile.
const HEADER: &str = "omniheap profile 1";

const PATTERNS: [(&str, Pattern); 3] = [
    ("broadcast", Pattern::Broadcast),
    ("coalesced", Pattern::Coalesced),
    ("gathered", Pattern::Gathered),
];

const SIZES: [(&str, TableSize); 3] =
    [("small", TableSize::Small), ("medium", TableSize::Medium), ("large", TableSize::Large)];

/// Why a profile was not read.
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
    /// A line means nothing: measure again, or delete the file.
    Line {
        /// Its number, from 1.
        number: usize,
    },
}

impl fmt::Display for ProfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "the profile could not be read: {error}"),
            Self::TooLong { size } => {
                write!(f, "the file has {size} bytes and a profile at most {LONGEST}")
            }
            Self::Line { number } => write!(
                f,
                "line {number} of the profile means nothing; run `omniheap calibrate` again or delete the file"
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

/// Where the profile of a device is kept: in `$OMNIHEAP_PROFILES`, or in the user's configuration folder.
#[must_use]
pub fn profile_path(caps: &Caps) -> Option<PathBuf> {
    let folder = env::var_os("OMNIHEAP_PROFILES").map(PathBuf::from).or_else(|| {
        let config = env::var_os("XDG_CONFIG_HOME").map(PathBuf::from);
        let config =
            config.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".config")))?;
        Some(config.join("omniheap"))
    })?;
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let name: String = caps.device.name.chars().take(64).map(plain).collect();
    Some(folder.join(format!("{}-{name}.profile", caps.device.backend)))
}

/// The policy for a device: with what was measured on it where there is a profile, else the built-in rules.
#[must_use]
pub fn policy_for(caps: &Caps) -> Arc<dyn Policy> {
    let read = profile_path(caps).map(|path| read_profile(&path));
    match read {
        Some(Ok(profile)) => Arc::new(MeasuredPolicy { profile }),
        _ => Arc::new(DefaultPolicy),
    }
}

/// Reads a profile.
///
/// # Errors
///
/// [`ProfileError`]: a file that is not there, too long, or not a profile.
pub fn read_profile(path: &Path) -> Result<Profile, ProfileError> {
    let size = fs::metadata(path)?.len();
    if size > LONGEST {
        return Err(ProfileError::TooLong { size });
    }
    parse(&fs::read_to_string(path)?)
}

fn parse(text: &str) -> Result<Profile, ProfileError> {
    let mut profile = Profile::ASSUMED;
    let mut lines = (1usize..).zip(text.lines());
    if lines.next().map(|(_, line)| line) != Some(HEADER) {
        return Err(ProfileError::Line { number: 1 });
    }
    for (number, line) in lines {
        let words: Vec<&str> = line.split_whitespace().collect();
        let entry = entry(&words).ok_or(ProfileError::Line { number })?;
        profile = profile.with(entry.0, entry.1, entry.2);
    }
    Ok(profile)
}

/// `PATTERN SIZE CONSTANT SHARED STAGE`, the last three in percent.
fn entry(words: &[&str]) -> Option<(Pattern, TableSize, Cost)> {
    let [pattern, size, constant, shared, stage] = words else { return None };
    let pattern = PATTERNS.iter().find(|(name, _)| name == pattern)?.1;
    let size = SIZES.iter().find(|(name, _)| name == size)?.1;
    let percent = |word: &str| word.parse::<u32>().ok().filter(|value| *value <= 1_000_000);
    let cost =
        Cost { constant: percent(constant)?, shared: percent(shared)?, stage: percent(stage)? };
    Some((pattern, size, cost))
}

/// Writes a profile.
///
/// # Errors
///
/// When the folder or the file cannot be written.
pub fn write_profile(path: &Path, profile: &Profile) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, format(profile))
}

fn format(profile: &Profile) -> String {
    let mut text = format!("{HEADER}\n");
    for (pattern_name, pattern) in PATTERNS {
        for (size_name, size) in SIZES {
            let Cost { constant, shared, stage } = profile.cost(pattern, size.most());
            text.push_str(&format!("{pattern_name} {size_name} {constant} {shared} {stage}\n"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let cost = Cost { constant: 37, shared: 81, stage: 412 };
        let profile = Profile::ASSUMED.with(Pattern::Gathered, TableSize::Medium, cost);
        assert_eq!(parse(&format(&profile)).expect("its own text"), profile);
    }

    #[test]
    fn what_is_no_profile_is_refused_with_its_line() {
        let line = |text: &str| match parse(text) {
            Err(ProfileError::Line { number }) => number,
            other => panic!("{other:?}"),
        };
        assert_eq!(line(""), 1);
        assert_eq!(line("omniheap profile 2\n"), 1);
        assert_eq!(line(&format!("{HEADER}\nbroadcast small 1 2\n")), 2);
        assert_eq!(line(&format!("{HEADER}\nbroadcast small 1 2 3\nsideways small 1 2 3\n")), 3);
        assert_eq!(line(&format!("{HEADER}\nbroadcast small NaN 2 3\n")), 2);
        assert_eq!(line(&format!("{HEADER}\nbroadcast small 1 2 99999999\n")), 2);
        assert_eq!(line(&format!("{HEADER}\n\n")), 2, "an empty line is no entry");
    }
}
