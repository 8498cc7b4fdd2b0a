/*
 * base/version.h -- the version of coupond, couponctl and their API: openapi.json has the same.
 */
#ifndef BASE_VERSION_H
#define BASE_VERSION_H

#define COUPONS_VERSION "2.0.0"

#endif
