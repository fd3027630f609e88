//! Results of a run, for people and for tools.
use core::fmt::Write;
use core::time::Duration;
use omniheap_core::DeviceInfo;

/// Outcome of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The promise holds.
    Passed,
    /// The capability is absent, and its absence is as documented.
    Refused(String),
    /// The promise is broken, or something was left behind.
    Failed(String),
    /// The case fails, as the list of known failures says, for this reason.
    Known(String),
}

/// One case in one mode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaseResult {
    /// The sentence, as an identifier.
    pub name: &'static str,
    /// `plain`, `paged` or `erased`.
    pub mode: &'static str,
    /// The behaviours it proves.
    pub numbers: &'static [u16],
    /// Outcome of the case.
    pub outcome: Outcome,
    /// Time that it took.
    pub time: Duration,
}

/// Results of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Results {
    /// The label of the rig.
    pub label: String,
    /// The device.
    pub device: DeviceInfo,
    /// The seed of every random case.
    pub seed: u64,
    /// Cases of a whole run; a filter leaves fewer.
    pub total: usize,
    /// Every case that ran.
    pub cases: Vec<CaseResult>,
}

impl Results {
    fn count(&self, which: impl Fn(&Outcome) -> bool) -> usize {
        self.cases.iter().filter(|case| which(&case.outcome)).count()
    }

    /// Cases that passed.
    #[must_use]
    pub fn passed(&self) -> usize {
        self.count(|outcome| *outcome == Outcome::Passed)
    }

    /// Cases that failed, known failures aside.
    #[must_use]
    pub fn failed(&self) -> usize {
        self.count(|outcome| matches!(outcome, Outcome::Failed(_)))
    }

    /// Cases whose capability is absent and refused as documented.
    #[must_use]
    pub fn refused(&self) -> usize {
        self.count(|outcome| matches!(outcome, Outcome::Refused(_)))
    }

    /// Known failures that failed.
    #[must_use]
    pub fn known(&self) -> usize {
        self.count(|outcome| matches!(outcome, Outcome::Known(_)))
    }

    /// One JSON object.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut out = String::from("{");
        let backend = self.device.backend;
        for (key, value) in [
            ("label", self.label.as_str()),
            ("backend", backend),
            ("device", &self.device.name),
            ("driver", &self.device.driver),
        ] {
            let _ = write!(out, "{}:{},", quoted(key), quoted(value));
        }
        let counts = (self.passed(), self.failed(), self.refused(), self.known());
        let _ = write!(
            out,
            "\"seed\":{},\"total\":{},\"passed\":{},\"failed\":{},\"refused\":{},\"known\":{},\"cases\":[",
            self.seed, self.total, counts.0, counts.1, counts.2, counts.3
        );
        let cases: Vec<_> = self.cases.iter().map(case_json).collect();
        let _ = write!(out, "{}]}}", cases.join(","));
        out
    }

    /// A `JUnit` file.
    #[must_use]
    pub fn to_junit(&self) -> String {
        let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
        let _ = writeln!(
            out,
            "<testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" skipped=\"{}\">",
            escaped(&self.label),
            self.cases.len(),
            self.failed(),
            self.refused() + self.known()
        );
        for case in &self.cases {
            let seconds = case.time.as_secs_f64();
            let (mode, name) = (case.mode, case.name);
            let _ = write!(
                out,
                "<testcase classname=\"{mode}\" name=\"{name}\" time=\"{seconds:.3}\">"
            );
            let _ = match &case.outcome {
                Outcome::Passed => Ok(()),
                Outcome::Failed(why) => write!(out, "<failure message=\"{}\"/>", escaped(why)),
                Outcome::Refused(why) | Outcome::Known(why) => {
                    write!(out, "<skipped message=\"{}\"/>", escaped(why))
                }
            };
            out.push_str("</testcase>\n");
        }
        out.push_str("</testsuite>\n");
        out
    }
}

fn case_json(case: &CaseResult) -> String {
    let (outcome, reason) = match &case.outcome {
        Outcome::Passed => ("passed", None),
        Outcome::Refused(why) => ("refused", Some(why)),
        Outcome::Failed(why) => ("failed", Some(why)),
        Outcome::Known(why) => ("known", Some(why)),
    };
    let numbers: Vec<_> = case.numbers.iter().map(u16::to_string).collect();
    let reason = reason.map_or(String::new(), |why| format!(",\"reason\":{}", quoted(why)));
    format!(
        "{{\"name\":{},\"mode\":{},\"numbers\":[{}],\"outcome\":\"{outcome}\",\"ms\":{}{reason}}}",
        quoted(case.name),
        quoted(case.mode),
        numbers.join(","),
        case.time.as_millis()
    )
}

/// A JSON string.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            control if u32::from(control) < 0x20 => {
                let _ = write!(out, "\\u{:04x}", u32::from(control));
            }
            other => out.push(other),
        }
    }
    out.push('"');
    out
}

/// Text for an XML attribute; characters that XML cannot carry become spaces.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' => out.push_str("&#10;"),
            control if u32::from(control) < 0x20 => out.push(' '),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_text_stays_inside_its_string() {
        assert_eq!(quoted("a\"b\\c\nd\u{1}"), "\"a\\\"b\\\\c\\nd\\u0001\"");
        assert_eq!(escaped("<\"&\n\u{0}>"), "&lt;&quot;&amp;&#10; &gt;");
    }
}
