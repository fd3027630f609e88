//! Moving live data together: a pure plan, then copies, then one commit under the lane's lock.
mod pass;
mod release;
mod window;
