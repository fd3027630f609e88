//! Requests as the command line and files write them.
use super::Failure;
use super::output;
use clap::{Args, ValueEnum};
use omniheap::{Access, Align, Lifetime, Pattern, Request, Writer};
use serde::Deserialize;
use std::fs;
use std::path::Path;

/// No file of requests is longer.
const LONGEST: u64 = 1 << 20;

/// Who writes the bytes.
#[derive(Clone, Copy, Debug, Default, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Writes {
    #[default]
    Device,
    HostOnce,
    HostPerFrame,
}

/// Who reads the bytes.
#[derive(Clone, Copy, Debug, Default, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Reads {
    #[default]
    Device,
    Host,
    Both,
}

/// How kernels read the bytes.
#[derive(Clone, Copy, Debug, Default, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(super) enum How {
    #[default]
    Coalesced,
    Broadcast,
    Gathered,
    Tiled,
}

/// How long the bytes live.
#[derive(Clone, Copy, Debug, Default, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Lives {
    #[default]
    Persistent,
    Frame,
    Kernel,
}

/// Whether another region may serve.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Substitutes {
    #[default]
    Allowed,
    Forbidden,
}

/// One request on the command line.
#[derive(Args, Debug)]
pub(super) struct Options {
    /// Bytes (suffixes K, M, G, T)
    #[arg(long, value_parser = output::bytes_argument)]
    size: Option<u64>,
    /// Alignment in bytes: a power of two
    #[arg(long, value_parser = output::bytes_argument, default_value = "1")]
    align: u64,
    /// Who writes it
    #[arg(long, value_enum, default_value_t)]
    writes: Writes,
    /// Who reads it
    #[arg(long, value_enum, default_value_t)]
    reads: Reads,
    /// How kernels read it
    #[arg(long, value_enum, default_value_t)]
    pattern: How,
    /// How often a group of threads reads each byte
    #[arg(long, default_value_t = 1)]
    reuse: u32,
    /// How long it lives
    #[arg(long, value_enum, default_value_t)]
    lifetime: Lives,
    /// Whether another region may serve where the best one cannot
    #[arg(long, value_enum, default_value_t)]
    substitute: Substitutes,
}

impl Options {
    pub(super) fn wanted(&self) -> Result<Wanted, Failure> {
        let size = self.size.ok_or_else(|| Failure::input("give --size or a file of requests"))?;
        let wanted = Wanted {
            name: None,
            size,
            align: self.align,
            writes: self.writes,
            reads: self.reads,
            pattern: self.pattern,
            reuse: self.reuse,
            lifetime: self.lifetime,
            substitute: self.substitute,
        };
        wanted.check("--size")
    }
}

const fn one() -> u64 {
    1
}

const fn once() -> u32 {
    1
}

/// One request of a file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    pub(super) name: Option<String>,
    pub(super) size: u64,
    #[serde(default = "one")]
    align: u64,
    #[serde(default)]
    writes: Writes,
    #[serde(default)]
    reads: Reads,
    #[serde(default)]
    pattern: How,
    #[serde(default = "once")]
    reuse: u32,
    #[serde(default)]
    lifetime: Lives,
    #[serde(default)]
    substitute: Substitutes,
}

impl Wanted {
    /// Refuses what no request can be.
    fn check(self, place: &str) -> Result<Self, Failure> {
        if self.size == 0 {
            return Err(Failure::input(format!("{place}: size is 0; ask for at least one byte")));
        }
        if Align::new(self.align).is_none() {
            let align = self.align;
            return Err(Failure::input(format!("{place}: align is {align}, not a power of two")));
        }
        Ok(self)
    }

    pub(super) fn request(&self) -> Request<'_> {
        let request = Request::new(self.size)
            .align(Align::new(self.align).unwrap_or(Align::ONE))
            .reuse(self.reuse)
            .writer(match self.writes {
                Writes::Device => Writer::Device,
                Writes::HostOnce => Writer::HostOnce,
                Writes::HostPerFrame => Writer::HostPerFrame,
            })
            .access(match self.reads {
                Reads::Device => Access::Device,
                Reads::Host => Access::Host,
                Reads::Both => Access::Both,
            })
            .pattern(match self.pattern {
                How::Coalesced => Pattern::Coalesced,
                How::Broadcast => Pattern::Broadcast,
                How::Gathered => Pattern::Gathered,
                How::Tiled => Pattern::Tiled,
            })
            .lifetime(match self.lifetime {
                Lives::Persistent => Lifetime::Persistent,
                Lives::Frame => Lifetime::Frame,
                Lives::Kernel => Lifetime::Kernel,
            });
        match self.substitute {
            Substitutes::Allowed => request,
            Substitutes::Forbidden => request.no_substitute(),
        }
    }
}

/// Reads a file of requests.
pub(super) fn read(path: &Path) -> Result<Vec<Wanted>, Failure> {
    let shown = path.display();
    let wrong = |why: &dyn core::fmt::Display| Failure::input(format!("{shown}: {why}"));
    let size = fs::metadata(path).map_err(|error| wrong(&error))?.len();
    if size > LONGEST {
        return Err(wrong(&format!("{size} bytes; a file of requests has at most {LONGEST}")));
    }
    let text = fs::read_to_string(path).map_err(|error| wrong(&error))?;
    let requests: Vec<Wanted> = serde_json::from_str(&text).map_err(|error| {
        wrong(&format!("{error}; a list of requests is expected, such as [{{\"size\": 4096}}]"))
    })?;
    let numbered = requests.into_iter().enumerate();
    numbered.map(|(at, wanted)| wanted.check(&format!("{shown}: request {at}"))).collect()
}
