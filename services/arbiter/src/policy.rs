//! The policy file: what each user's processes may hold.
#![forbid(unsafe_code)]

use crate::books::Rules;
use crate::frame::Name;
use core::time::Duration;
use omniheap_limits::parse_size;
use serde::Deserialize;
use std::collections::BTreeMap;

/// Largest `patience_ms`. A request may wait for two presses, and its tenant gives up after three times as long ([`PATIENCE`](crate::PATIENCE)).
const MOST_PATIENCE_MS: u64 = 10_000;

/// Reason why a policy was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// Neither the file nor its reader says how many bytes are divided.
    #[error("policy: no capacity; write capacity = \"80GiB\", or pass --capacity or --device")]
    NoCapacity,
    /// A mistake, and its place.
    #[error("policy: {0}")]
    Wrong(String),
}

/// Rules of the arbiter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Bytes that are divided.
    pub capacity: u64,
    /// Time that a tenant has to answer a press.
    pub patience: Duration,
    /// True if debtors are ended.
    pub end_debtors: bool,
    /// Processes of one user that may be tenants at once.
    pub processes: usize,
    /// Bytes that the driver may count for a process beside what it holds: its context, kernels, memory of libraries.
    pub overhead: u64,
    rules: BTreeMap<u32, Rules>,
    others: Rules,
    /// Patterns of names that users may attach, besides their own.
    attachable: BTreeMap<u32, Vec<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    capacity: Option<String>,
    patience_ms: Option<u64>,
    #[serde(default)]
    end_debtors: bool,
    processes: Option<usize>,
    overhead: Option<String>,
    #[serde(default)]
    default: Entry,
    #[serde(default)]
    tenant: BTreeMap<String, Entry>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    quota: Option<String>,
    reserve: Option<String>,
    weight: Option<u32>,
    priority: Option<u32>,
    #[serde(default)]
    may_attach: Vec<String>,
}

impl Policy {
    /// Divides this many bytes equally, without quotas and reserves.
    #[must_use]
    pub fn equal(capacity: u64) -> Self {
        let others = Rules { quota: capacity, reserve: 0, weight: 1, priority: 0 };
        Self {
            capacity,
            patience: Duration::from_millis(500),
            end_debtors: false,
            processes: 64,
            overhead: 2 << 30,
            rules: BTreeMap::new(),
            others,
            attachable: BTreeMap::new(),
        }
    }

    /// Reads a policy file. `capacity` stands above what the file says.
    ///
    /// # Errors
    /// For text that is no TOML, unknown keys, names that are not `uid:<number>`, sizes that are none, weights of 0, quotas above the
    /// capacity, reserves above their quota, and reserves that do not fit together.
    ///
    /// # Examples
    /// ```
    /// use omniheap_arbiter::Policy;
    /// let policy = Policy::parse("[tenant.\"uid:1001\"]\nquota = \"60GiB\"\nweight = 2\n", Some(80 << 30))?;
    /// assert_eq!((policy.rules(1001).quota, policy.rules(7).quota), (60 << 30, 80 << 30));
    /// # Ok::<(), omniheap_arbiter::PolicyError>(())
    /// ```
    pub fn parse(text: &str, capacity: Option<u64>) -> Result<Self, PolicyError> {
        let file: File = toml::from_str(text)
            .map_err(|error| PolicyError::Wrong(error.to_string().replace('\n', " ")))?;
        let written = file.capacity.as_deref().map(|text| size(text, "capacity")).transpose()?;
        let capacity = capacity.or(written).ok_or(PolicyError::NoCapacity)?;
        let mut policy = Self::equal(capacity);
        if let Some(patience) = file.patience_ms {
            policy.patience = self::patience(patience)?;
        }
        policy.end_debtors = file.end_debtors;
        policy.processes = file.processes.unwrap_or(policy.processes);
        if let Some(text) = file.overhead.as_deref() {
            policy.overhead = if text == "0" { 0 } else { size(text, "overhead")? };
        }
        policy.others = rules(&file.default, policy.others, "default")?;
        for (name, entry) in &file.tenant {
            let uid = name.strip_prefix("uid:").and_then(|uid| uid.parse().ok());
            let uid = uid.ok_or_else(|| {
                PolicyError::Wrong(format!("tenant {name:?} is not of the form \"uid:1001\""))
            })?;
            policy.rules.insert(uid, rules(entry, policy.others, name)?);
            policy.attachable.insert(uid, patterns(&entry.may_attach, name)?);
        }
        if !file.default.may_attach.is_empty() {
            let why = "default: may_attach is for users with an entry of their own";
            return Err(PolicyError::Wrong(why.into()));
        }
        policy.check()?;
        Ok(policy)
    }

    fn check(&self) -> Result<(), PolicyError> {
        let reserves = self.rules.values().map(|rules| rules.reserve);
        let sum = reserves.fold(0_u64, u64::saturating_add);
        if sum > self.capacity {
            let capacity = self.capacity;
            return Err(PolicyError::Wrong(format!(
                "reserves of {sum} bytes do not fit {capacity}"
            )));
        }
        let mut all = self.rules.values().chain([&self.others]);
        if let Some(rules) = all.find(|rules| rules.quota > self.capacity) {
            let (quota, capacity) = (rules.quota, self.capacity);
            return Err(PolicyError::Wrong(format!(
                "a quota of {quota} bytes is above {capacity}"
            )));
        }
        Ok(())
    }

    /// Returns the rules for the processes of a user; each process has them for itself.
    #[must_use]
    pub fn rules(&self, uid: u32) -> Rules {
        self.rules.get(&uid).copied().unwrap_or(self.others)
    }
}

impl Policy {
    /// Returns whether a user may attach memory that another one has published under this name.
    pub(crate) fn may_attach(&self, uid: u32, name: &str) -> bool {
        let patterns = self.attachable.get(&uid).into_iter().flatten();
        patterns.into_iter().any(|pattern| matches(pattern, name))
    }
}

/// Checks patterns of names: what a name may have, and `*` for any part of one.
fn patterns(patterns: &[String], name: &str) -> Result<Vec<String>, PolicyError> {
    let is_pattern = |text: &&String| Name::new(&text.replace('*', "-")).is_some();
    match patterns.iter().find(|text| !is_pattern(text)) {
        None => Ok(patterns.to_vec()),
        Some(text) => Err(PolicyError::Wrong(format!(
            "{name}: may_attach: {text:?} is no pattern such as \"llama-*\""
        ))),
    }
}

/// Returns whether a name is as a pattern says, in which `*` stands for any letters.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == name };
    let (middle, end) = rest.rsplit_once('*').unwrap_or(("", rest));
    let Some(name) = name.strip_prefix(start).and_then(|name| name.strip_suffix(end)) else {
        return false;
    };
    // Each part where it first occurs: that leaves most of the name to the parts behind it, so no other place need be tried.
    let mut left = Some(name);
    for part in middle.split('*') {
        left = left.and_then(|left| Some(left.split_once(part)?.1));
    }
    left.is_some()
}

fn size(text: &str, what: &str) -> Result<u64, PolicyError> {
    parse_size(text)
        .ok_or_else(|| PolicyError::Wrong(format!("{what}: {text:?} is no size such as 8GiB")))
}

fn rules(entry: &Entry, base: Rules, name: &str) -> Result<Rules, PolicyError> {
    let of = |text: &Option<String>, base, what: &str| match text {
        Some(text) if what == "reserve" && text == "0" => Ok(0),
        Some(text) => size(text, &format!("{name}: {what}")),
        None => Ok(base),
    };
    let rules = Rules {
        quota: of(&entry.quota, base.quota, "quota")?,
        reserve: of(&entry.reserve, base.reserve, "reserve")?,
        weight: entry.weight.unwrap_or(base.weight),
        priority: entry.priority.unwrap_or(base.priority),
    };
    if rules.weight == 0 {
        return Err(PolicyError::Wrong(format!(
            "{name}: a weight of 0; use a quota to keep a user out"
        )));
    }
    if rules.reserve > rules.quota {
        return Err(PolicyError::Wrong(format!("{name}: the reserve is above the quota")));
    }
    Ok(rules)
}

/// Checks `patience_ms`.
fn patience(patience_ms: u64) -> Result<Duration, PolicyError> {
    if (1..=MOST_PATIENCE_MS).contains(&patience_ms) {
        return Ok(Duration::from_millis(patience_ms));
    }
    let text = format!("patience_ms is {patience_ms}; write 1 to {MOST_PATIENCE_MS}");
    Err(PolicyError::Wrong(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_policies_say_what_is_wrong() {
        for (text, word) in [
            ("", "no capacity"),
            ("capacity = \"much\"", "no size"),
            ("capacity = \"8G\"\nsped = 1", "unknown field"),
            ("capacity = \"8G\"\noverhead = \"some\"", "overhead"),
            ("capacity = \"8G\"\npatience_ms = 0", "1 to 10000"),
            ("capacity = \"8G\"\npatience_ms = 10001", "1 to 10000"),
            ("capacity = \"8G\"\n[tenant.bob]\nweight = 1", "uid:1001"),
            ("capacity = \"8G\"\n[tenant.\"uid:1\"]\nquota = \"9G\"", "above"),
            ("capacity = \"8G\"\n[tenant.\"uid:1\"]\nweight = 0", "weight of 0"),
            (
                "capacity = \"8G\"\n[tenant.\"uid:1\"]\nquota = \"1G\"\nreserve = \"2G\"",
                "above the quota",
            ),
            (
                "capacity = \"8G\"\n[tenant.\"uid:1\"]\nreserve = \"5G\"\n[tenant.\"uid:2\"]\nreserve = \"5G\"",
                "do not fit",
            ),
            ("capacity = ", "TOML"),
            ("capacity = \"8G\"\n[tenant.\"uid:1\"]\nmay_attach = [\"a/b\"]", "no pattern"),
            ("capacity = \"8G\"\n[default]\nmay_attach = [\"*\"]", "entry of their own"),
        ] {
            let error = Policy::parse(text, None).expect_err(text).to_string();
            assert!(error.contains(word) && !error.contains('\n'), "{text}: {error}");
        }
    }

    #[test]
    fn stars_stand_for_any_letters() {
        for (pattern, name, is) in [
            ("llama-*", "llama-70b", true),
            ("llama-*", "llama-", true),
            ("llama-*", "xllama-70b", false),
            ("*-70b", "llama-70b", true),
            ("*-70b", "llama-70b-v2", false),
            ("l*7*b", "llama-70b", true),
            ("l*8*b", "llama-70b", false),
            ("llama", "llama", true),
            ("llama", "llama2", false),
            ("*", "x", true),
            ("a*a", "a", false),
            ("a**b", "ab", true),
            ("*ab*ba*", "aba", false),
            ("*ab*ba*", "abba", true),
            ("*b*c*d", "abbcdd", true),
            ("*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*ab", &"a".repeat(64), false),
        ] {
            assert_eq!(matches(pattern, name), is, "{pattern} {name}");
        }
        let text = "capacity = \"8G\"\n[tenant.\"uid:5\"]\nmay_attach = [\"llama-*\"]\n";
        let policy = Policy::parse(text, None).expect("a policy");
        assert!(policy.may_attach(5, "llama-7b") && !policy.may_attach(6, "llama-7b"));
    }

    #[test]
    fn users_without_an_entry_get_the_default() {
        let text = "capacity = \"8G\"\n[default]\nquota = \"2G\"\n[tenant.\"uid:5\"]\nweight = 3\n";
        let policy = Policy::parse(text, None).expect("a policy");
        let gib = 1 << 30;
        assert_eq!(policy.rules(5), Rules { quota: 2 * gib, reserve: 0, weight: 3, priority: 0 });
        assert_eq!(policy.rules(6), Rules { quota: 2 * gib, reserve: 0, weight: 1, priority: 0 });
    }
}
