<?php
/* A checkout by a client that openapi-generator made, below php/: client.php URL OPS-KEY STOREFRONT-KEY COUPON. Prints what it saw as JSON. */
require '/usr/share/php/GuzzleHttp/autoload.php';
spl_autoload_register(function ($class) {
    if (str_starts_with($class, 'OpenAPI\Client\\')) {
        require __DIR__ . '/php/lib/' . strtr(substr($class, strlen('OpenAPI\Client\\')), '\\', '/') . '.php';
    }
});

use OpenAPI\Client\Api\CouponsApi;
use OpenAPI\Client\Api\RedemptionsApi;
use OpenAPI\Client\ApiException;
use OpenAPI\Client\Configuration;
use OpenAPI\Client\Model\CodeOfUser;
use OpenAPI\Client\Model\CouponChange;
use OpenAPI\Client\Model\NewCap;
use OpenAPI\Client\Model\NewCoupon;
use OpenAPI\Client\Model\NewDiscount;
use OpenAPI\Client\Model\Order;
use OpenAPI\Client\Model\Step;
use OpenAPI\Client\Model\Taking;

[, $url, $ops_key, $shop_key, $coupon] = $argv;
$http = new GuzzleHttp\Client();
$keyed = fn($key) => (new Configuration())->setHost($url)->setAccessToken($key);
$ops = new CouponsApi($http, $keyed($ops_key));
$coupons = new CouponsApi($http, $keyed($shop_key));
$shop = new RedemptionsApi($http, $keyed($shop_key));

[$made, , $headers] = $ops->couponCreateWithHttpInfo(new NewCoupon([
    'id' => $coupon, 'title' => 'Made by PHP', 'state' => 'active', 'cap' => new NewCap(['total' => 5]), 'generate' => true,
    'discount' => new NewDiscount(['kind' => 'amount', 'amount_minor' => 500, 'currency' => 'EUR']),
    'metadata' => ['campaign' => ['n' => 1]],
]));
$changed = $ops->couponChange($coupon, $headers['ETag'][0], new CouponChange(['title' => 'Changed']));
$order = fn($amount, $id = null) => new Order(array_filter(['id' => $id, 'amount_minor' => $amount, 'currency' => 'EUR']));
$checked = $shop->redemptionCheck($coupon, new Taking(['user' => 'u-1', 'order' => $order(2000)]));
$found = $shop->resolve(new CodeOfUser(['code' => $coupon, 'user' => 'u-1', 'order' => $order(1580)]))->getItems()[0];
$held = $shop->redemptionTake($coupon, 'hold', new Taking(['user' => 'u-1', 'state' => 'reserved', 'order' => $order(2000, 'o-1')]));
$redeemed = $shop->redemptionRedeem($coupon, $held->getId(), 'redeem', null, new Step());
$reversed = $shop->redemptionReverse($coupon, $held->getId());
try {
    $shop->redemptionTake("$coupon-never", 'never', new Taking(['user' => 'u-1']));
} catch (ApiException $e) {
    $refused = json_decode($e->getResponseBody())->code;
}
$read = $coupons->couponGet($coupon);
echo json_encode([
    'title' => $changed->getTitle(), 'discount_minor' => $held->getDiscountMinor(),
    'states' => [$held->getState(), $redeemed->getState(), $reversed->getState()], 'refused' => $refused,
    'campaign' => $read->getMetadata()['campaign'], 'total' => $read->getCap()->getTotal(),
    'checked' => [$checked->getOk(), $checked->getDiscountMinor(), $checked->getRemaining()],
    'found' => [$found->getProblem(), $found->getReason(), $found->getMissingMinor()],
]);
