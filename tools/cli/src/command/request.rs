//! Requests as the command line writes them.
use super::Failure;
use super::file::is_standard;
use super::output;
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use omniheap::placement::{
    Access, Coherence, Dependence, Keyword, Lifetime, Pattern, Privacy, Registration, Spill,
    Substitution, Work, Writer, WrittenRequest, read_requests, read_requests_from,
};
use std::io::stdin;
use std::path::Path;

/// Returns the words of a type, as the command line checks them.
fn words<T: Keyword>() -> impl TypedValueParser<Value = T> {
    let known = PossibleValuesParser::new(T::WORDS.iter().map(|(word, _)| *word));
    known.map(|word| T::from_word(&word).expect("one of the words above"))
}

/// Every option of a request: a file of requests says them itself.
pub(super) const OPTIONS: [&str; 15] = [
    "size",
    "align",
    "writes",
    "reads",
    "pattern",
    "work",
    "dependence",
    "reuse",
    "touches",
    "lifetime",
    "coherence",
    "registration",
    "substitute",
    "spill",
    "privacy",
];

/// One request on the command line.
#[derive(Args, Debug)]
pub(super) struct Options {
    /// Bytes (suffixes K, M, G, T)
    #[arg(long, value_parser = output::bytes_argument)]
    size: Option<u64>,
    /// Alignment in bytes: a power of two
    #[arg(long, value_parser = output::bytes_argument, default_value = "1")]
    align: u64,
    /// Writer of the data
    #[arg(long, value_parser = words::<Writer>(), default_value = "device")]
    writes: Writer,
    /// Reader of the data
    #[arg(long, value_parser = words::<Access>(), default_value = "device")]
    reads: Access,
    /// Access pattern of kernels
    #[arg(long, value_parser = words::<Pattern>(), default_value = "coalesced")]
    pattern: Pattern,
    /// Arithmetic of kernels: light is at most one multiply-add per number read
    #[arg(long, value_parser = words::<Work>(), default_value = "any")]
    work: Work,
    /// Dependence between reads
    #[arg(long, value_parser = words::<Dependence>(), default_value = "any")]
    dependence: Dependence,
    /// Average reads per byte by one workgroup
    #[arg(long, default_value_t = 1)]
    reuse: u32,
    /// Bytes of it that one group of threads reads, where that is not all of them
    #[arg(long, value_parser = output::bytes_argument)]
    touches: Option<u64>,
    /// Lifetime
    #[arg(long, value_parser = words::<Lifetime>(), default_value = "persistent")]
    lifetime: Lifetime,
    /// Host-device coherence without flushes
    #[arg(long, value_parser = words::<Coherence>(), default_value = "any")]
    coherence: Coherence,
    /// Need of communication libraries (NCCL, RDMA) to register it
    #[arg(long, value_parser = words::<Registration>(), default_value = "any")]
    registration: Registration,
    /// Permission to use a substitute region
    #[arg(long, value_parser = words::<Substitution>(), default_value = "allowed")]
    substitute: Substitution,
    /// Permission to spill to host memory when device memory is full
    #[arg(long, value_parser = words::<Spill>(), default_value = "forbidden")]
    spill: Spill,
    /// Privacy: secret bytes are cleared when it is freed
    #[arg(long, value_parser = words::<Privacy>(), default_value = "open")]
    privacy: Privacy,
}

impl Options {
    /// Returns the request, checked.
    pub(super) fn wanted(&self) -> Result<WrittenRequest, Failure> {
        let size = self.size.ok_or_else(|| Failure::input("give --size or a file of requests"))?;
        let wanted = WrittenRequest {
            name: None,
            size,
            align: self.align,
            writes: self.writes,
            reads: self.reads,
            pattern: self.pattern,
            work: self.work,
            dependence: self.dependence,
            reuse: self.reuse,
            touches: self.touches,
            lifetime: self.lifetime,
            coherence: self.coherence,
            registration: self.registration,
            substitute: self.substitute,
            spill: self.spill,
            privacy: self.privacy,
        };
        wanted.check(0).map_err(|error| Failure::input(error.to_string()))?;
        Ok(wanted)
    }
}

/// Reads a file of requests.
pub(super) fn read(path: &Path) -> Result<Vec<WrittenRequest>, Failure> {
    let shown = path.display();
    let read = if is_standard(path) { read_requests_from(stdin()) } else { read_requests(path) };
    read.map_err(|error| Failure::input(format!("{shown}: {error}")))
}
