/* ctl/replset.h -- couponctl's hidden subcommand replset-init: see replset.c. */
#ifndef CTL_REPLSET_H
#define CTL_REPLSET_H

/* argv: replset-init KEYFILE PASSWORD-FILE DATABASE NAME HOST:PORT... Returns the exit code. */
int ctl_replset_init(int argc, char **argv);

#endif
