//! One picture of all ranks of a job, from one file per rank.
//!
//! [`Job::open`] reads a folder of traces, PyTorch snapshots, reports in JSON and [`Digest`]s; [`Job::new`] takes digests that were
//! gathered otherwise. [`write_html`] turns a job into a page.
//!
//! # Examples
//! ```
//! use omniheap_trace::ranks::{Digest, Job};
//! let small = b"op,id,size,stream,time_us\na,0,100,0,0\n";
//! let large = b"op,id,size,stream,time_us\na,0,900,0,0\n";
//! let job = Job::new([Digest::read(&small[..], "rank0.csv")?, Digest::read(&large[..], "rank1.csv")?].map(Ok));
//! let peak = job.spreads().into_iter().find(|spread| spread.name == "peak live").expect("there is one");
//! assert_eq!((peak.min.rank, peak.max.rank, peak.total), (0, 1, 1000));
//! # Ok::<(), omniheap_trace::Error>(())
//! ```

mod digest;
mod html;
mod job;
mod launcher;
mod read;

pub use digest::{BAND, Digest, Failed, LabelBytes, Sequence};
pub use html::write_html;
pub use job::{At, Doubled, Failure, Job, Parting, Problem, Spread, World};
pub use launcher::{Place, place_from_environment, rank_from_name};
